//! Rules that differ between systems: each rule is a setting, and a profile is a set of settings.

use kiban_tcpip::tcp::{Config, PROFILES};

#[test]
fn every_profile_has_a_name_and_the_first_is_the_default() {
    assert_eq!(Config::profile(PROFILES[0]), Some(Config::default()));
    let known: Vec<Config> = PROFILES.iter().filter_map(|name| Config::profile(name)).collect();
    assert_eq!(known.len(), PROFILES.len());
    assert!(known[1] != known[0] && known[2] != known[0] && known[1] != known[2]);
    assert_eq!(Config::profile("4.2bsd"), None);
}

#[test]
fn a_profile_can_be_written_down_and_read_back() {
    for name in PROFILES {
        let profile = Config::profile(name).expect("it has a name");
        let mut read = Config::default();
        profile.each(&mut |name, word, _| read.set(name, word).expect("what is shown can be read"));
        assert_eq!(read, profile);
    }
}
