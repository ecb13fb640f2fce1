//! docs/programs.md: what the run found.

use crate::case::Case;

/// The place of the page.
pub(crate) fn place() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs.md")
}

const HEAD: &str = "# Programs on kiban's verbs

*Which RDMA programs run as they are, and which do not?*

Debian 12's packages, unchanged, with kiban's `libibverbs.so.1` and `librdmacm.so.1` in place of the system's (see
[verbs.md](verbs.md)). This page is written by the run itself (`KIBAN_WRITE=1 cargo test -p kiban-verbs --test drop_in`); `make test`
fails where it is wrong. A program *runs* when it ends well and its output shows what it should: rows with figures that are
not zero, data that was compared, every test complete. The client's command is shown; the server's has the same options. What is *missing* is tried
as well, and must fail.

**ib** and **iwarp** are what the devices say they are (`KIBAN_TRANSPORT`).
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
