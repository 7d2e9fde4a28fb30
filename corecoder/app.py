"""Wiring: a configuration becomes an agent. The only place that chooses concrete parts and their settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from .agent import Agent, ChatModel
from .config import Config
from .context import ContextManager
from .errors import ConfigError
from .llm import LLM, LLMSettings
from .permissions import Permissions
from .prompt import system_prompt
from .sandbox import Sandbox, choose, policy_for
from .session import Session
from .tool import Workspace
from .tools import ALL_TOOLS

if TYPE_CHECKING:
    from .checkpoints import Checkpoints

LATEST = "latest"


def build_agent(
    config: Config,
    *,
    directory: Path,
    interactive: bool = False,
    resume: str | None = None,
    llm: ChatModel | None = None,
    begin: Callable[[ChatModel], None] | None = None,
) -> Agent:
    """An agent for the project at `directory`.

    `resume` is None for a new session, LATEST for the project's last one, else an id or the start of one. `llm`
    replaces the model of `config`, and `begin` is given the model before the rest is built.
    Raises ConfigError or SessionError.
    """
    workspace = Workspace.at(directory)
    llm = llm or make_llm(config)
    if begin:
        begin(llm)
    session = open_session(config, workspace, resume)
    sandbox, boundary = make_sandbox(config, workspace, interactive=interactive)
    context = ContextManager(
        llm.info.window,
        system={"role": "system", "content": session.system},
        tools=[tool.schema() for tool in ALL_TOOLS],
        output_reserve=config.max_tokens,
        snip_at=config.snip_at,
        summarize_at=config.summarize_at,
        collapse_at=config.collapse_at,
        tail=config.tail,
        summary_timeout=config.summary_timeout,
    )
    return Agent(
        llm,
        ALL_TOOLS,
        session=session,
        workspace=workspace,
        context=context,
        permissions=Permissions(
            config.mode,
            workspace,
            confined=sandbox is not None,
            all_confined=config.sandbox != "auto" or config.offline,
            boundary=boundary,
        ),
        checkpoints=lambda: _checkpoints(config, workspace),
        max_steps=config.max_steps,
        interactive=interactive,
        secrets=config.secret_names,
        sandbox=sandbox,
    )


def _checkpoints(config: Config, workspace: Workspace) -> Checkpoints:
    from .checkpoints import Checkpoints  # with its database 15 ms, only once something is changed

    return Checkpoints(config.home, workspace)


def make_sandbox(config: Config, workspace: Workspace, *, interactive: bool = False) -> tuple[Sandbox | None, str]:
    """What confines commands here, and words for it or on why nothing does; for whoever is there (`interactive`) also
    where the mode needs none, because it may change. Raises ConfigError where one was demanded and there is none."""
    needless = config.sandbox == "off" or (config.sandbox == "auto" and config.mode == "yolo")
    if needless and config.offline:
        raise ConfigError("--offline holds only in a sandbox; add --sandbox required, or leave it out")
    if needless and (config.sandbox == "off" or not interactive):
        return None, ""
    with contextlib.suppress(OSError):  # what is to be hidden must be there to be covered
        config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        sandbox, why = choose(policy_for(workspace.root, config.home, offline=config.offline), config.sandbox)
    except ConfigError as error:
        if config.sandbox != "auto" or config.offline:
            raise
        sandbox, why = None, str(error)
    if sandbox:
        return sandbox, sandbox.describe()
    if config.offline:
        raise ConfigError(f"--offline needs a sandbox, and none works here ({why})")
    return None, f"No sandbox: {why.removesuffix('.')}."


def make_llm(config: Config) -> LLM:
    """The model that `config` names."""
    settings = LLMSettings(
        first_byte_timeout=config.first_byte_timeout,
        idle_timeout=config.idle_timeout,
        keepalive_timeout=config.keepalive_timeout,
        retry_wait_limit=config.retry_wait_limit,
    )
    return LLM(
        config.model,
        config.api_key,
        config.base_url,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        settings=settings,
        home=config.home,
        window=config.max_context,
    )


def open_session(config: Config, workspace: Workspace, resume: str | None) -> Session:
    """A new session, or the one that `resume` names, ready to go on."""
    if resume is None:
        prompt = system_prompt(workspace, ALL_TOOLS, home=config.home, today=date.today())
        return Session.create(config.home, workspace.root, system=prompt, model=config.model)
    path = Session.latest(config.home, workspace.root) if resume == LATEST else None
    return Session.load(path or Session.find(config.home, workspace.root, "" if resume == LATEST else resume))
