//! Runs many random jobs and compares the results with a simple model.

use super::*;

/// The model: a map from each path to its contents, or to `None` for a directory.
type Plain = alloc::collections::BTreeMap<String, Option<Vec<u8>>>;

#[test]
fn two_hundred_random_runs_match_a_model_filestore() {
    for seed in 0..200 {
        let mut chance = SimRng::from_seed(seed);
        let mut fixture = Fixture::new();
        let mut plain = Plain::new();
        let below = |chance: &mut SimRng, bound: u64| chance.below(bound) as usize;
        let ours = initiator::Config {
            fdata_bytes: 1 + below(&mut chance, 3000),
            checkpoint_bytes: 1 + chance.below(5000),
            window: 1 + chance.below(4) as i64,
            ..small()
        };
        let theirs = responder::Config {
            fdata_bytes: 1 + below(&mut chance, 3000),
            checkpoint_bytes: 1 + chance.below(5000),
            ..responder_small()
        };
        let mut pair = Pair::connected_with(&mut fixture, ours, theirs);
        let names = ["a", "b", "d", "d/a", "d/b", "e", "e/f", "../x"];
        for step in 0..12 {
            let name = names[below(&mut chance, names.len() as u64)];
            let count = below(&mut chance, 120);
            let contents = lines(count, &mut chance);
            fixture.here.put(&path("mine"), &contents);
            let document = [BINARY, text(27), text(22)][below(&mut chance, 3)].clone();
            let good = !name.starts_with("..");
            let directory = |plain: &Plain, name: &str| match name.rsplit_once('/') {
                Some((above, _)) => plain.get(above) == Some(&None),
                None => true,
            };
            let is_file = |plain: &Plain, name: &str| matches!(plain.get(name), Some(Some(_)));
            let about = format!("world {seed}, step {step}, {name}");
            match chance.below(7) {
                0 | 1 => {
                    let fits = good && directory(&plain, name) && plain.get(name) != Some(&None);
                    let done = pair.job(&mut fixture, put("mine", name, document)).is_ok();
                    assert_eq!(done, fits, "{about}: put");
                    if done {
                        plain.insert(name.to_string(), Some(contents));
                    }
                }
                2 => {
                    let job = Job::Get { remote: name.into(), local: path("back"), document: None };
                    let done = pair.job(&mut fixture, job).is_ok();
                    let is_directory = plain.get(name) == Some(&None);
                    assert_eq!(done, good && is_file(&plain, name), "{about}: get, {is_directory}");
                    if let (true, Some(Some(expected))) = (done, plain.get(name)) {
                        assert_eq!(fixture.here.contents(&path("back")), Some(&expected[..]), "{about}");
                    }
                }
                3 => {
                    let fits = good && directory(&plain, name) && !plain.contains_key(name);
                    let done = pair.job(&mut fixture, Job::MakeDirectory { remote: name.into() }).is_ok();
                    assert_eq!(done, fits, "{about}: make");
                    if done {
                        plain.insert(name.to_string(), None);
                    }
                }
                4 => {
                    let inner = format!("{name}/");
                    let fits = good
                        && plain.contains_key(name)
                        && !plain.keys().any(|other| other.starts_with(&inner));
                    let done = pair.job(&mut fixture, Job::Remove { remote: name.into() }).is_ok();
                    assert_eq!(done, fits, "{about}: remove");
                    if done {
                        plain.remove(name);
                    }
                }
                5 => {
                    let to = names[below(&mut chance, names.len() as u64)];
                    let inner = format!("{name}/");
                    let fits = good
                        && plain.contains_key(name)
                        && (to == name
                            || !to.starts_with("..")
                                && directory(&plain, to)
                                && !plain.contains_key(to)
                                && !to.starts_with(&inner));
                    let done =
                        pair.job(&mut fixture, Job::Rename { remote: name.into(), to: to.into() }).is_ok();
                    assert_eq!(done, fits, "{about}: rename to {to}");
                    if done {
                        let moved: Vec<String> = plain
                            .keys()
                            .filter(|other| *other == name || other.starts_with(&inner))
                            .cloned()
                            .collect();
                        for old in moved {
                            let what = plain.remove(&old).unwrap();
                            plain.insert(format!("{to}{}", &old[name.len()..]), what);
                        }
                    }
                }
                _ => {
                    let done = match pair.job(&mut fixture, Job::List { remote: name.into() }) {
                        Ok(Outcome::Entries(entries)) => {
                            let inner = format!("{name}/");
                            let expected = plain.keys().filter(|other| other.starts_with(&inner)).count();
                            assert_eq!(entries.len(), expected, "{about}");
                            true
                        }
                        _ => false,
                    };
                    assert_eq!(done, good && plain.get(name) == Some(&None), "{about}: list");
                }
            }
            let there: Plain = fixture
                .there
                .tree()
                .map(|(path, contents)| (path.as_str().to_string(), contents.map(<[u8]>::to_vec)))
                .collect();
            assert_eq!(there, plain, "{about}");
        }
        pair.close(&mut fixture);
        fixture.is_tidy();
    }
}
