//! `kiban verbs` as a user runs it.

mod preload;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LIBRARIES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];
const PATHS: &str = "libkiban_paths.so";
const PRELOADED: &str = "libkiban_paths.so:libibverbs.so.1";

/// Creates substitutes for the libraries: valid (empty) ones, because they are preloaded.
fn fill(folder: &Path) {
    for library in LIBRARIES.iter().chain([&PATHS]) {
        let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
        cc.args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(folder.join(library));
        let output = cc.output().expect("there is a C compiler");
        assert!(output.status.success(), "{}", told(&output));
    }
}

/// Creates a directory with the libraries.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    fill(&folder);
    folder.canonicalize().expect("it was just made")
}

fn kiban(folder: Option<&Path>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiban"));
    command.arg("verbs").args(arguments);
    command.env("LD_LIBRARY_PATH", "/before").env("KIBAN_TRANSPORT", "as it was");
    match folder {
        Some(folder) => command.env("KIBAN_VERBS_LIB", folder),
        None => command.env_remove("KIBAN_VERBS_LIB"),
    };
    command.output().expect("the program was built")
}

fn told(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].concat().iter().map(|byte| char::from(*byte)).collect()
}

#[test]
fn a_program_runs_with_the_libraries_and_its_own_arguments() {
    let folder = folder("verbs run");
    let place = folder.display();
    let show =
        ["sh", "-c", "echo \"$LD_LIBRARY_PATH $LD_PRELOAD $KIBAN_TRANSPORT $1 $2\"", "sh", "--env", "a b"];
    for (before, transport) in [
        (&["--"][..], "as it was"),
        (&[], "as it was"),
        (&["--transport", "ib", "--"], "ib"),
        (&["--transport=iwarp"], "iwarp"),
    ] {
        let output = kiban(Some(&folder), &[before, &show].concat());
        assert_eq!(told(&output), format!("{place}:/before {PRELOADED} {transport} --env a b\n"));
    }
    let output = kiban(Some(&folder), &["--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    let output = kiban(Some(&folder), &["--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(15), "the program has this process's place");
}

#[test]
fn the_environment_is_printed_as_sh_commands() {
    let folder = folder("it's a $PLACE");
    let output = kiban(Some(&folder), &["--env", "--transport", "ib"]);
    assert!(output.status.success(), "{}", told(&output));
    let script = format!("{}echo \"$LD_LIBRARY_PATH $LD_PRELOAD $KIBAN_TRANSPORT\"", told(&output));
    for (before, after) in [(None, ""), (Some("/before:/then"), ":/before:/then")] {
        let mut sh = Command::new("sh");
        sh.args(["-u", "-c", &script]).env_remove("LD_LIBRARY_PATH");
        if let Some(before) = before {
            sh.env("LD_LIBRARY_PATH", before);
        }
        let output = sh.output().expect("there is a shell");
        assert_eq!(told(&output), format!("{}{after} {PRELOADED} ib\n", folder.display()));
    }
    let output = kiban(Some(&folder), &["--env"]);
    assert!(!told(&output).contains("KIBAN_TRANSPORT"), "{}", told(&output));
}

#[test]
fn usage_errors_name_a_remedy() {
    let good = folder("verbs good");
    let half = folder("verbs half");
    std::fs::remove_file(half.join(LIBRARIES[1])).expect("it is there");
    let colon = folder("verbs:colon");
    let run = &["--", "true"][..];
    for (folder, arguments, code, words) in [
        (&half, run, 1, "correct KIBAN_VERBS_LIB, or unset it"),
        (&half, run, 1, half.to_str().expect("a plain path")),
        (&colon, run, 1, "move it to a path without ':'"),
        (&good, &["--", "no-such-program-at-all"], 127, "is it installed?"),
        (&good, &["--", "/"], 126, "cannot start /: "),
        (&good, &[], 2, "PROGRAM"),
        (&good, &["--env", "true"], 2, "--env"),
        (&good, &["--transport", "infiniband", "true"], 2, "iwarp"),
    ] {
        let output = kiban(Some(folder), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", told(&output));
        assert!(told(&output).contains(words), "{arguments:?}: {}", told(&output));
    }
}

/// The program looks first for the directory `verbs` in its own directory, as after a build, and then for
/// `lib/kiban` next to `bin`, as after an installation.
#[test]
fn the_libraries_are_found_where_they_are_installed_or_built() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verbs installed");
    let _ = std::fs::remove_dir_all(&root);
    std::fs::create_dir_all(root.join("bin")).expect("the target folder can be written");
    let program = root.join("bin/kiban");
    // Let another process write the copy. If this process wrote it, a child forked in the meantime could
    // inherit the descriptor that is open for writing, and executing the copy would fail (ETXTBSY).
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_kiban")).arg(&program).status();
    assert!(copied.is_ok_and(|status| status.success()), "there is room");
    let run = || {
        let mut command = Command::new(&program);
        command.args(["verbs", "--", "sh", "-c", "echo \"$LD_LIBRARY_PATH\""]);
        command.env_remove("KIBAN_VERBS_LIB").env_remove("LD_LIBRARY_PATH");
        told(&command.output().expect("it was just copied"))
    };
    let missing = run();
    for words in ["bin/verbs or in ", "bin/../lib/kiban: ", "make verbs", "KIBAN_VERBS_LIB"] {
        assert!(missing.contains(words), "{missing}");
    }
    for place in ["lib/kiban", "bin/verbs"] {
        let folder = root.join(place);
        std::fs::create_dir_all(&folder).expect("there is room");
        fill(&folder);
        let folder = folder.canonicalize().expect("it was just made");
        assert_eq!(run(), format!("{}\n", folder.display()));
    }
}

/// A program that looks for files, and counts the calls into the dynamic linker during this time; such calls
/// take the dynamic linker's locks.
const ASKS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* The C library says of access() that it calls nothing here. */
static volatile int lookups;

void *dlsym(void *handle, const char *name)
{
    (void)handle;
    lookups++;
    /* That of the C library, as the one who asks behind itself means it. */
    void *libc = dlopen("libc.so.6", RTLD_LAZY), *found = dlvsym(libc, name, "GLIBC_2.33");
    return found ? found : dlvsym(libc, name, BASE);
}

int main(void)
{
    struct stat is;
    lookups = 0;
    errno = E2BIG;
    int there = !access("/dev/null", R_OK) && !stat("/dev/null", &is) && S_ISCHR(is.st_mode) && errno == E2BIG;
    int gone = access("/no/such/file", F_OK) == -1 && errno == ENOENT && stat("/no/such/file", &is) == -1 && errno == ENOENT;
    printf("there %d, gone %d, lookups %d\n", there, gone, lookups);
    return 0;
}
"#;

/// Signal handlers may call access() and stat() (POSIX.1-2017 2.4.3), but not dlsym().
#[test]
fn the_preloaded_paths_stay_async_signal_safe() {
    let folder = preload::built("verbs-paths", "paths");
    let compile = |arguments: &[&str]| {
        let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
        let output = cc.current_dir(&folder).args(arguments).output().expect("there is a C compiler");
        assert!(output.status.success(), "{}", told(&output));
    };
    std::fs::write(folder.join("asks.c"), ASKS).expect("the folder can be written");
    let base = if cfg!(target_arch = "x86_64") { "-DBASE=\"GLIBC_2.2.5\"" } else { "-DBASE=\"GLIBC_2.17\"" };
    // At -O1, glibc's headers do not define any of the interposed functions as a macro or inline function.
    compile(&["-O1", "-rdynamic", base, "asks.c", "-o", "asks", "-ldl"]);
    let mut asks = Command::new(folder.join("asks"));
    let output = asks.env("LD_PRELOAD", folder.join(PATHS)).output().expect("it was just made");
    assert_eq!(told(&output), "there 1, gone 1, lookups 0\n");
}
