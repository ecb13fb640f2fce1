use super::accounts::Users;
use super::file::{Grants, set_user, write_user};
use super::hash::hash_with;
use argon2::Params;
use argon2::password_hash::phc::PasswordHash;
use kiban_osi::ftam::filestore::{Action, Actions, AuthRefusal, Credentials, Path};

/// Returns a hash with low cost parameters, so that tests are fast.
fn quick(password: &str) -> String {
    hash_with(password.as_bytes(), Params::new(64, 1, 1, None).unwrap()).unwrap()
}

fn credentials(user: &str, password: &str, account: Option<&str>) -> Credentials {
    let password = Some(password.as_bytes().to_vec());
    Credentials {
        user: Some(user.into()),
        account: account.map(Into::into),
        password,
        address: "10.0.0.1".into(),
    }
}

fn file() -> String {
    format!(
        "# Who collects calls.\n[users.collector]\npassword = \"{}\"  # of 2026\nrights = [\"read\", \"delete\"]\n\
         home = \"calls/today\"\naccounts = [\"billing\"]\n\n[users.\"the boss\"]\nrights = \"all\"\npassword = \"{}\"\n",
        quick("secret"),
        quick("other"),
    )
}

#[test]
fn users_are_admitted_with_their_rights_and_homes() {
    let users = Users::parse(&file(), "users.toml").unwrap();
    assert_eq!(users.count(), 2);
    let admission = users.verify(&credentials("collector", "secret", Some("billing"))).unwrap();
    assert_eq!(admission.home, Path::read("calls/today").unwrap());
    let rights: Vec<&str> = admission.rights.each().map(|action| action.word()).collect();
    assert_eq!((admission.user.as_str(), &rights[..]), ("collector", &["read", "delete"][..]));
    let boss = users.verify(&credentials("the boss", "other", None)).unwrap();
    assert_eq!((boss.rights, boss.home), (Actions::ALL, Path::root()));
    let rows = [
        (credentials("collector", "secret", None), AuthRefusal::Account),
        (credentials("collector", "secret", Some("sales")), AuthRefusal::Account),
        // The refusal mentions the account only if the password is correct.
        (credentials("collector", "guess", Some("sales")), AuthRefusal::Password),
        (credentials("collector", "", Some("billing")), AuthRefusal::Password),
        (credentials("collector", "secre", Some("billing")), AuthRefusal::Password),
        (credentials("nobody", "secret", None), AuthRefusal::Password),
        (credentials("nobody", "", None), AuthRefusal::Password),
        (credentials("", "", None), AuthRefusal::Password),
        (Credentials::default(), AuthRefusal::Password),
        (credentials("the boss", &"x".repeat(10_000), None), AuthRefusal::Password),
    ];
    for (given, expected) in rows {
        assert_eq!(users.verify(&given), Err(expected), "{given:?}");
    }
    assert_eq!(
        Users::parse("", "users.toml").unwrap().verify(&credentials("a", "b", None)),
        Err(AuthRefusal::Password)
    );
}

#[test]
fn an_unknown_name_takes_as_long_to_verify_as_a_known_one() {
    let users = Users::parse(&file(), "users.toml").unwrap();
    let cost = |hash: &PasswordHash| Params::try_from(hash).map(|params| (params.m_cost(), params.t_cost()));
    let known = cost(&users.users["collector"].password).unwrap();
    assert_eq!(cost(&users.nobody).unwrap(), known);
    assert_eq!(known, (64, 1));
}

#[test]
fn errors_name_the_line_the_key_and_what_to_write() {
    let good = quick("x");
    let user = |lines: &str| format!("# users\n[users.ann]\n{lines}");
    let rights = "rights = \"all\"\n";
    let dear = good.replace("m=64", "m=4194304");
    let rows = [
        (
            user(&format!("password = \"{good}\"\nrights = [\"reed\"]\n")),
            4,
            "users.ann.rights",
            "read-attribute",
        ),
        (user(&format!("password = \"{good}\"\nrights = \"most\"\n")), 4, "users.ann.rights", "\"all\""),
        (user(&format!("password = \"secret\"\n{rights}")), 3, "users.ann.password", "kiban ftam passwd ann"),
        (user(&format!("password = \"{dear}\"\n{rights}")), 3, "users.ann.password", "kiban ftam passwd"),
        (
            user(&format!("password = \"{good}\"\n{rights}home = \"../x\"\n")),
            5,
            "users.ann.home",
            "calls/today",
        ),
        (user(&format!("password = \"{good}\"\n{rights}colour = 1\n")), 5, "", "[users.NAME]"),
        (user(rights), 2, "", "[users.NAME]"),
        (user("password = \n"), 3, "", "[users.NAME]"),
        (format!("[users.\"\"]\npassword = \"{good}\"\n{rights}"), 1, "users.", "a user name must be"),
        ("groups = 1\n".into(), 1, "", "[users.NAME]"),
    ];
    for (given, line, key, remedy) in rows {
        let error = Users::parse(&given, "users.toml").unwrap_err();
        assert_eq!((error.line, error.key.as_str()), (line, key), "{given}{error}");
        assert!(error.to_string().starts_with(&format!("users.toml:{line}")), "{error}");
        assert!(error.remedy.contains(remedy), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn a_new_password_changes_one_line() {
    let (old, new, same) = (file(), quick("new"), Grants::default());
    let changed = set_user(&old, "users.toml", "the boss", &new, &same).unwrap();
    let differing: Vec<(&str, &str)> =
        old.lines().zip(changed.lines()).filter(|(old, new)| old != new).collect();
    assert_eq!(differing.len(), 1);
    let users = Users::parse(&changed, "users.toml").unwrap();
    assert!(users.verify(&credentials("the boss", "new", None)).is_ok());
    assert_eq!(users.verify(&credentials("the boss", "other", None)), Err(AuthRefusal::Password));
    for user in ["ann", "a \"b\" \\c", "'"] {
        let added = set_user(&old, "users.toml", user, &new, &same).unwrap();
        assert!(added.starts_with(&old));
        let admission =
            Users::parse(&added, "users.toml").unwrap().verify(&credentials(user, "new", None)).unwrap();
        assert_eq!(admission.rights, Actions::NONE.with(Action::Read).with(Action::ReadAttribute));
    }
    let first = set_user("", "x", "ann", &new, &same).unwrap();
    assert!(first.starts_with("[users.ann]\n"), "{first}");
    assert_eq!(Users::parse(&first, "x").unwrap().count(), 1);
    // Other forms of TOML keep their form.
    let odd = format!("users.ann = {{ password = \"{new}\", rights = \"all\" }} # ours\n");
    let changed = set_user(&odd, "users.toml", "ann", &quick("y"), &same).unwrap();
    assert!(changed.starts_with("users.ann = {") && changed.ends_with("} # ours\n"), "{changed}");
    assert!(Users::parse(&changed, "x").unwrap().verify(&credentials("ann", "y", None)).is_ok());
    assert!(set_user("[users.ann", "users.toml", "ann", &new, &same).is_err());
}

#[test]
fn grants_are_set_and_kept() {
    let (new, some) = (quick("new"), Actions::NONE.with(Action::Read).with(Action::Insert));
    let home = Path::read("calls/tomorrow").unwrap();
    let grants = Grants { rights: Some(some), home: Some(home.clone()) };
    for user in ["collector", "ann"] {
        let text = set_user(&file(), "x", user, &new, &grants).unwrap();
        let text = set_user(&text, "x", user, &new, &Grants::default()).unwrap();
        let account = (user == "collector").then_some("billing");
        let admission = Users::parse(&text, "x").unwrap().verify(&credentials(user, "new", account)).unwrap();
        assert_eq!((admission.rights, admission.home), (some, home.clone()), "{text}");
    }
    let all = Grants { rights: Some(Actions::ALL), home: None };
    let text = set_user(&file(), "x", "collector", &new, &all).unwrap();
    assert!(text.contains("rights = \"all\"") && text.contains("# of 2026"), "{text}");
}

#[test]
fn the_file_is_written_atomically_and_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let directory = std::env::temp_dir().join(format!("kiban-users-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("users.toml");
    assert!(Users::read(&path).unwrap_err().remedy.contains("kiban ftam passwd"));
    write_user(&path, "ann", b"secret", &Grants::default()).unwrap();
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    write_user(&path, "ann", b"other", &Grants::default()).unwrap();
    assert_eq!(mode(), 0o640);
    let users = Users::read(&path).unwrap();
    assert!(users.verify(&credentials("ann", "other", None)).is_ok());
    assert_eq!(users.verify(&credentials("ann", "secret", None)), Err(AuthRefusal::Password));
    assert!(write_user(&path, "ann", b"", &Grants::default()).is_err());
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "nothing is left beside it");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(Users::read(&path).unwrap_err().remedy.contains("chmod"));
    // If the users file is a pipe, it is rejected, and opening it does not block.
    std::fs::remove_file(&path).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    assert!(Users::read(&path).unwrap_err().wrong.contains("is a pipe"));
    std::fs::remove_dir_all(&directory).unwrap();
}
