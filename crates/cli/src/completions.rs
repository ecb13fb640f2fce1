//! `kiban completions`: shell completion scripts.

use clap::{Args, Command};
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a shell completion script.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban completions bash > /etc/bash_completion.d/kiban\
        \n  kiban completions fish > ~/.config/fish/completions/kiban.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Prints the completion script for `kiban` and its subcommands.
    pub(crate) fn run(self, kiban: &mut Command) -> Result<ExitCode, String> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, kiban, "kiban", &mut script);
        script.extend(names_of_hosts(self.shell).bytes());
        crate::output::print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns code that completes the names of the FTAM hosts file, which change without a new script.
fn names_of_hosts(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => {
            r#"
_kiban_hosts() {
    _kiban "$@"
    local word=${COMP_WORDS[COMP_CWORD]}
    if [[ ${COMP_WORDS[1]} == ftam && $COMP_CWORD -gt 2 && $word != -* && $word != *:* ]]; then
        COMPREPLY+=($(compgen -W "$(kiban ftam hosts --names 2>/dev/null)" -- "$word"))
        [[ ${COMPREPLY[0]} == *: ]] && compopt -o nospace
        COMPREPLY+=($(compgen -f -- "$word"))
    fi
}
complete -F _kiban_hosts -o bashdefault -o default kiban
"#
        }
        Shell::Fish => {
            "\ncomplete -c kiban -n '__fish_seen_subcommand_from ftam' -a '(kiban ftam hosts --names 2>/dev/null)'\n"
        }
        _ => "",
    }
}
