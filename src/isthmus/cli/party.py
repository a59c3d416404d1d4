"""Options by which a party says who it is, where it meets the others, and how it proves that it belongs to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import SERVER_NAME

if TYPE_CHECKING:
    from isthmus.wire.meeting import MeetingPlace

Silo = Annotated[str | None, typer.Option(help="Run as this silo alone, and meet the others.")]
Server = Annotated[bool, typer.Option("--server", help="Run as the party that carries the server alone.")]
Meet = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where the parties meet: at the server's.")]
Listen = Annotated[
    str | None, typer.Option(help="Interface or address at which this party listens (default: loopback).")
]
TokenFile = Annotated[
    str | None, typer.Option("--token", metavar="FILE", help="Secret that all parties share (or ISTHMUS_TOKEN).")
]


def place_from(
    silo: str | None, server: bool, meet: str | None, listen: str | None, token: str | None
) -> MeetingPlace | None:
    """Where and as whom a party meets the others; None where all run on this machine, or by rank."""
    if silo and server:
        raise IsthmusError("--silo and --server are two parties; start each by itself.")
    name = SERVER_NAME if server else silo
    if name is None or meet is None:
        given = {"--silo": silo, "--server": server, "--meet": meet, "--listen": listen, "--token": token}
        said = [option for option, value in given.items() if value]
        if said:
            raise IsthmusError(
                f"{', '.join(said)} {'is' if len(said) == 1 else 'are'} of a party that meets others: say who it is "
                "(--silo NAME or --server) and where they meet (--meet HOST:PORT)."
            )
        return None
    if "RANK" in os.environ:
        raise IsthmusError("torchrun numbers hosts itself, over a store that authenticates nobody; leave out --silo.")
    from isthmus.wire.meeting import place_of
    from isthmus.wire.token import read_token

    return place_of(name, meet, listen, read_token(token))
