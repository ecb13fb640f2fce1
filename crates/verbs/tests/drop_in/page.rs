//! Writes docs/programs.md from the results.

use crate::case::Case;

/// Returns the path of the page.
pub(crate) fn place() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs.md")
}

const HEAD: &str = "# Programs on kiban's verbs

This page lists the RDMA programs that were run on kiban's verbs, with the result of each. They are the
unchanged programs of Debian 12's packages, but with kiban's `libibverbs.so.1` and `librdmacm.so.1` instead of
the system's libraries ([verbs.md](verbs.md)).

A test writes this page (`KIBAN_WRITE=1 cargo test -p kiban-verbs --test drop_in`), and `make test` fails if
the page is out of date. *Runs* means that the program exits successfully, and that its output shows figures
above zero, data that were compared, or tests that were completed. Commands marked *missing* cannot run, for
the reason given. They are also started, and the test requires them to fail.

`make test-programs` runs AI transfer engines of PyPI in the same way, with their default settings: Mooncake 0.3.13, NIXL
1.5.1 (through its bundled UCX and `rc_verbs`), DLSlime 0.1.23 and InfiniStore 0.2.35. UCX there prints two errors about a
netlink socket if the kernel has no RDMA; they are harmless.

Each row shows the client's command; the server is started with the same options. `{folder}` stands for a
directory that the test creates, and `ADDRESS` for the IP address of the first device. *Transport* is
what the devices report and speak (`KIBAN_TRANSPORT`): **ib**, **roce**, **efe** or **iwarp**.
";

/// The page for these results.
pub(crate) fn page(results: &[(Case, String)]) -> String {
    let mut text = HEAD.to_owned();
    let mut group = "";
    for (case, detail) in results {
        if case.group != group {
            group = case.group;
            text += &format!(
                "\n## {group}\n\nPackage `{}`.\n\n| command | transport | result |\n|---|---|---|\n",
                case.package
            );
        }
        let result = match (case.missing, detail.as_str()) {
            (Some(reason), _) => format!("missing: {reason}"),
            (None, "") => "runs".to_owned(),
            (None, detail) => detail.to_owned(),
        };
        let title = case.title();
        let title = if case.shown.is_some() { title } else { format!("`{title}`") };
        text += &format!("| {title} | {} | {result} |\n", case.transport.name());
    }
    let count =
        |is_missing: bool| results.iter().filter(|(case, _)| case.missing.is_some() == is_missing).count();
    text += &format!("\n{} of these commands run; {} cannot run.\n", count(false), count(true));
    text
}
