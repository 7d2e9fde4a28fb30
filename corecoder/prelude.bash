# Sourced by bash before each command (BASH_ENV): has the shell report, when it exits, where it is and what it exports.
# The report (200) and the script (201) use descriptors that no command is likely to use. A command that replaces the shell (exec) or sets
# an EXIT trap of its own loses the report and nothing else.
eval "exec $CORECODER_MOVE"
unset BASH_ENV CORECODER_MOVE
if [ -n "${CORECODER_BASH_ENV-}" ]; then
    export BASH_ENV="$CORECODER_BASH_ENV"
    unset CORECODER_BASH_ENV
fi
trap '{ builtin set -- "${PIPESTATUS[*]-}"
if [ "${BASHPID-$$}" = $$ ]; then
    builtin printf "%s\0" "$1" "${PWD-}"; builtin set +x; builtin export -p
fi >&200; } 2>/dev/null || :' EXIT
# When bash comes to the first command it has opened its script, and no child needs to inherit the descriptor.
trap 'exec 201<&-; trap - DEBUG' DEBUG
