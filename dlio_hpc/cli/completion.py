"""dlio-hpc completion: print the script that lets a shell complete the commands."""

from collections.abc import Sequence

import click

from dlio_hpc.cli.verbs import SETTINGS, argument, cli

SHELLS = ("bash", "zsh", "fish")
PROGRAMS = ("dlio-hpc", "dlio-submit")

# Words of bash end at "=" and ":", which values of -S contain. The script puts such words together again, and returns
# only the part after the last of these characters. A key is followed by "=", not by a blank.
_BASH = """\
_dlio_hpc_complete() {
    local cur="${COMP_WORDS[COMP_CWORD]}" words=("${COMP_WORDS[@]}") cword=$COMP_CWORD type value reply=()
    if declare -F _get_comp_words_by_ref > /dev/null; then
        _get_comp_words_by_ref -n "=:" cur words cword
    fi
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) reply+=("$value") ;;
        esac
    done < <(COMP_WORDS="${words[*]}" COMP_CWORD=$cword _DLIO_HPC_COMPLETE=bash_complete \\
        _DLIO_SUBMIT_COMPLETE=bash_complete "$1" 2> /dev/null)
    if [ ${#reply[@]} = 1 ] && [[ ${reply[0]} == *= ]]; then
        compopt -o nospace
    fi
    case $cur in
        *[=:]*) reply=("${reply[@]#"${cur%"${cur##*[=:]}"}"}") ;;
    esac
    COMPREPLY=("${reply[@]}")
}
complete -o nosort -F _dlio_hpc_complete PROGRAMS
"""


@click.command(context_settings=SETTINGS)
@argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes dlio-hpc and dlio-submit in a shell, with names, jobs and keys.

    For the current shell of bash: eval "$(dlio-hpc completion bash)". dlio-hpc install-site installs all scripts.
    """
    print(script(shell), end="")


def script(shell: str, programs: Sequence[str] = PROGRAMS) -> str:
    """Return the script that completes the programs in a shell. shell: one of SHELLS."""
    if shell == "bash":
        return _BASH.replace("PROGRAMS", " ".join(programs))
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    return "\n".join(kind(cli, {}, name, _variable(name)).source().strip() for name in programs) + "\n"


def _variable(program: str) -> str:
    """Return the environment variable by which click is asked to complete."""
    return f"_{program.replace('-', '_').upper()}_COMPLETE"
