//! Writes docs/programs.md from the results.

use crate::case::Case;

/// Returns the path of the page.
pub(crate) fn place() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs.md")
}

const HEAD: &str = "# Programs on kiban's verbs

This page lists the RDMA programs that were run on kiban's verbs, with the result of each. They are Debian 12's packages,
unchanged, with kiban's `libibverbs.so.1` and `librdmacm.so.1` instead of the system's ([verbs.md](verbs.md)).

The test writes this page (`KIBAN_WRITE=1 cargo test -p kiban-verbs --test drop_in`); `make test` fails if it is out of date.
*Runs* means that the program exits successfully and that its output shows figures above zero, compared data, or complete
tests. The table shows the client's command; the server has the same options. Programs marked *missing* are also run, and must fail.

**ib** and **iwarp** are the transport types that the devices report (`KIBAN_TRANSPORT`).
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
    text += &format!("\n{} run, {} are missing.\n", count(false), count(true));
    text
}
