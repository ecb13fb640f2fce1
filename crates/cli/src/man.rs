//! `kiban man`: manual pages.
//!
//! clap_mangen writes most of each page. This module adds the names of option values to the synopsis, turns
//! the end of the help text into sections, and adds a list of related pages.

use clap::{Args, Command};
use clap_mangen::Man as Page;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write the manual pages into a directory.
#[derive(Args)]
#[command(after_help = "Examples:\n  kiban man /usr/local/share/man/man1 && man kiban")]
pub(crate) struct Man {
    /// The directory; created if it does not exist.
    folder: PathBuf,
}

impl Man {
    /// Writes the pages for `kiban` and its subcommands.
    pub(crate) fn run(self, kiban: Command) -> Result<ExitCode, String> {
        let say = |error: std::io::Error| {
            format!("cannot write the manual pages to {}: {error}", self.folder.display())
        };
        std::fs::create_dir_all(&self.folder).map_err(say)?;
        let mut kiban = kiban.disable_help_subcommand(true);
        kiban.build();
        let commands = with_those_below(&kiban);
        let names: Vec<String> = commands.iter().map(|command| name(command)).collect();
        commands.iter().try_for_each(|command| write(command, &names, &self.folder)).map_err(say)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn with_those_below(command: &Command) -> Vec<&Command> {
    std::iter::once(command).chain(shown(command).flat_map(with_those_below)).collect()
}

/// Returns the subcommands for users. The others are for kiban's own processes.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

fn write(command: &Command, names: &[String], folder: &Path) -> std::io::Result<()> {
    let page = Page::new(command.clone().override_usage(synopsis(command)))
        .source(concat!("kiban ", env!("CARGO_PKG_VERSION")))
        .manual("kiban");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let mut text = String::from_utf8_lossy(&text)
        .replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n.nf\n")
        .replace("\n\nVariables:\n", "\n.fi\n.SH ENVIRONMENT\n.nf\n")
        .replace(".SH EXTRA\nExit status: ", ".SH EXIT STATUS\n")
        .replace("\n\nExit status: ", "\n.fi\n.SH EXIT STATUS\n");
    let others = names.iter().filter(|other| **other != name(command));
    let others: Vec<String> = others.map(|other| format!("{}(1)", other.replace('-', "\\-"))).collect();
    text += &format!(".fi\n.SH SEE ALSO\n{}\n", others.join(", "));
    std::fs::write(folder.join(page.get_filename()), text)
}

/// `kiban talk [--trace] [--pcap PATH] [PATHS]...`
fn synopsis(command: &Command) -> String {
    let mut words = vec![command.get_bin_name().unwrap_or(command.get_name()).to_owned()];
    let (options, places): (Vec<_>, Vec<_>) =
        command.get_arguments().partition(|argument| !argument.is_positional());
    for option in options {
        let takes = option.get_action().takes_values();
        let value = option.get_value_names().filter(|_| takes).map(|names| format!(" {}", names.join(" ")));
        let long = option.get_long().unwrap_or_default();
        words.push(format!("[--{long}{}]", value.unwrap_or_default()));
    }
    for place in places {
        let many = place.get_num_args().is_some_and(|count| count.max_values() > 1);
        let value = place.get_value_names().unwrap_or_default().join(" ");
        let value = if place.is_required_set() { value } else { format!("[{value}]") };
        words.push(value + if many { "..." } else { "" });
    }
    if command.has_subcommands() {
        let verbs: Vec<&str> = shown(command).map(Command::get_name).collect();
        words.push(format!("{{{}}} ...", verbs.join("|")));
    }
    words.join(" ")
}
