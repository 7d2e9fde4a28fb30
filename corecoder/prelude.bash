# Sourced by bash before each command (BASH_ENV): has the shell report, when it exits, where it is and what it exports.
# A command that replaces the shell (exec), sets an EXIT trap of its own or opens a file at our descriptor loses the
# report and nothing else; one that was not written to its end, which a NUL marks, is none. Nothing here may depend on
# IFS, which the command may have set.
unset BASH_ENV
if [ -n "${CORECODER_BASH_ENV-}" ]; then
    export BASH_ENV="$CORECODER_BASH_ENV"
    unset CORECODER_BASH_ENV
fi
trap '{ builtin set -- "${PIPESTATUS[@]-}"
if [ "${BASHPID-$$}" = "$$" ] && '"$CORECODER_OURS"'; then
    builtin printf "%s " "$@"; builtin printf "\0%s\0" "${PWD-}"; builtin set +x
    builtin export -p && builtin printf "\0"
fi >'"$CORECODER_REPORT"'; } 2>/dev/null || :' EXIT
unset CORECODER_OURS CORECODER_REPORT
# When bash comes to the first command it has opened its script, and no child needs to inherit the descriptor.
trap "exec $CORECODER_SCRIPT; unset CORECODER_SCRIPT; trap - DEBUG" DEBUG
