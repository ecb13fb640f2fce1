//! Tests of transfers that are cancelled, restarted, cut short and recovered.

use super::*;

#[test]
fn a_transfer_can_be_cancelled_and_restarted_at_any_moment() {
    let contents: Vec<u8> = (0..30_000u32).map(|n| n as u8).collect();
    for at in 0..60 {
        for cancels in [true, false] {
            for gets in [true, false] {
                let mut fixture = Fixture::new();
                fixture.here.put(&path("mine"), &contents);
                fixture.there.put(&path("f"), &contents);
                let mut pair = Pair::connected(&mut fixture);
                let job = if gets { get("f", "x") } else { put("mine", "x", BINARY) };
                pair.initiator.start(job, &mut pair.caller, &mut fixture.here).unwrap();
                (0..at).for_each(|_| _ = pair.round(&mut fixture));
                let done = match cancels {
                    true => pair.initiator.cancel(&mut pair.caller, &mut fixture.here).is_ok(),
                    false => pair.initiator.restart(&mut pair.caller).is_ok(),
                };
                pair.run(&mut fixture);
                let disk = if gets { &fixture.here } else { &fixture.there };
                match &pair.events[..] {
                    [Event::Ended(Err(failure))] if cancels && done => {
                        assert!(failure.cancelled);
                        assert_eq!(disk.contents(&path("x")), None);
                    }
                    [Event::Ended(Ok(Outcome::Done))] if !(cancels && done) => {
                        assert_eq!(disk.contents(&path("x")), Some(&contents[..]));
                    }
                    other => panic!("{at} {cancels} {gets} {done}: {other:?}"),
                }
                pair.events.clear();
                pair.close(&mut fixture);
                fixture.is_tidy();
            }
        }
    }
}

#[test]
fn a_transfer_cut_anywhere_is_recovered() {
    let mut chance = SimRng::from_seed(7);
    let binary: Vec<u8> = (0..25_000).map(|_| chance.draw() as u8).collect();
    let some_lines = lines(800, &mut chance);
    let mut recovered = 0;
    for (document, contents) in [(BINARY, &binary), (text(27), &binary), (records(), &some_lines)] {
        for kind in ["get", "put", "append"] {
            for cut in (0..90).step_by(3) {
                let mut fixture = Fixture::new();
                fixture.here.put(&path("mine"), contents);
                fixture.there.put(&path("old"), b"old\n");
                let mut pair = Pair::connected(&mut fixture);
                pair.job(&mut fixture, put("mine", "f", document.clone())).unwrap();
                let job = match kind {
                    "get" => get("f", "x"),
                    "put" => put("mine", "old", document.clone()),
                    _ => {
                        Job::Append { local: path("mine"), remote: "old".into(), document: document.clone() }
                    }
                };
                pair.left = Some(cut);
                pair.initiator.start(job.clone(), &mut pair.caller, &mut fixture.here).unwrap();
                (0..200).for_each(|_| _ = pair.round(&mut fixture));
                let finished = pair.events.contains(&Event::Ended(Ok(Outcome::Done)));
                let keys = crate::ftam::filestore::Disk::kept(&mut fixture.here);
                let told = lose(pair, &mut fixture);
                // Both the initiator and the responder crash without completing pending work.
                fixture.here.crash();
                fixture.there.crash();
                fixture.locks = Locks::new(100);
                let expected: Vec<u8> = match kind {
                    "append" => [b"old\n", &contents[..]].concat(),
                    _ => contents.clone(),
                };
                let is_there = |fixture: &Fixture| match kind {
                    "get" => fixture.here.contents(&path("x")).map(<[u8]>::to_vec),
                    _ => fixture.there.contents(&path("old")).map(<[u8]>::to_vec),
                };
                if finished {
                    assert_eq!(is_there(&fixture), Some(expected));
                    continue;
                }
                let mut pair = Pair::connected(&mut fixture);
                match told {
                    Some(key) => {
                        assert_eq!(keys, core::slice::from_ref(&key));
                        pair.initiator.recover(&key, &mut pair.caller, &mut fixture.here).unwrap();
                        pair.run(&mut fixture);
                        match &pair.events[..] {
                            [Event::Ended(Ok(Outcome::Done))] => {
                                recovered += 1;
                                assert_eq!(is_there(&fixture), Some(expected), "{document:?} {kind} {cut}");
                            }
                            // If the first request was lost, the responder does not know the transfer; if the
                            // final response was lost, it has the complete file.
                            [Event::Ended(Err(failure))] => {
                                let said = errors(failure);
                                assert!(
                                    said == [ErrorIdentifier::ACTIVITY_NOT_RECOGNIZED.0],
                                    "{document:?} {kind} {cut}: {failure:?}"
                                );
                                let there = is_there(&fixture);
                                let untouched = if kind == "get" { None } else { Some(b"old\n".to_vec()) };
                                assert!(there == Some(expected) || there == untouched, "{kind} {cut}");
                            }
                            other => panic!("{document:?} {kind} {cut}: {other:?}"),
                        }
                    }
                    // There is no docket, because the transfer had not begun when the association was lost.
                    None => assert_eq!(pair.job(&mut fixture, job), Ok(Outcome::Done), "{kind} {cut}"),
                }
                pair.events.clear();
                pair.close(&mut fixture);
                fixture.is_tidy();
            }
        }
    }
    assert!(recovered > 150, "only {recovered} transfers were recovered");
}

#[test]
fn a_transfer_that_filled_the_disk_and_was_then_cut_is_recovered() {
    let contents: Vec<u8> = (0..25_000u32).map(|n| n as u8).collect();
    let mut full = 0;
    for cut in 0..90 {
        let mut fixture = Fixture::new();
        fixture.here.put(&path("mine"), &contents);
        fixture.there.set_capacity(Some(12_000));
        let mut pair = Pair::connected(&mut fixture);
        pair.left = Some(cut);
        pair.initiator.start(put("mine", "x", BINARY), &mut pair.caller, &mut fixture.here).unwrap();
        (0..200).for_each(|_| _ = pair.round(&mut fixture));
        if !pair.events.is_empty() {
            assert!(full > 0, "no transfer was cut between the cancel and the close");
            return;
        }
        let failure = fail(pair, &mut fixture).expect("it was cut");
        full += u32::from(errors(&failure).contains(&ErrorIdentifier::LOCAL_FAILURE_SPACE.0));
        if crate::ftam::filestore::Disk::kept(&mut fixture.there).is_empty() {
            continue;
        }
        let key =
            failure.docket.unwrap_or_else(|| panic!("cut {cut}: only the responder keeps the transfer"));
        fixture.there.set_capacity(None);
        let mut pair = Pair::connected(&mut fixture);
        pair.initiator.recover(&key, &mut pair.caller, &mut fixture.here).unwrap();
        pair.run(&mut fixture);
        assert_eq!(pair.events, [Event::Ended(Ok(Outcome::Done))], "cut {cut}");
        assert_eq!(fixture.there.contents(&path("x")), Some(&contents[..]));
        pair.events.clear();
        pair.close(&mut fixture);
        fixture.is_tidy();
    }
    panic!("no transfer has ended");
}

#[test]
fn a_changed_file_is_not_recovered() {
    for (kind, remote) in [("get", true), ("put", false)] {
        let mut fixture = Fixture::new();
        fixture.here.put(&path("mine"), &[7; 20_000]);
        fixture.there.put(&path("f"), &[7; 20_000]);
        let mut pair = Pair::connected(&mut fixture);
        let job = if kind == "get" { get("f", "x") } else { put("mine", "x", BINARY) };
        pair.left = Some(14);
        pair.initiator.start(job, &mut pair.caller, &mut fixture.here).unwrap();
        (0..100).for_each(|_| _ = pair.round(&mut fixture));
        let key = lose(pair, &mut fixture).expect("it was cut");
        if remote {
            fixture.there.put(&path("f"), &[8; 20_000])
        } else {
            fixture.here.put(&path("mine"), &[8; 20_000])
        }
        let mut pair = Pair::connected(&mut fixture);
        pair.initiator.recover(&key, &mut pair.caller, &mut fixture.here).unwrap();
        pair.run(&mut fixture);
        assert!(matches!(&pair.events[..], [Event::Ended(Err(_))]), "{kind}: {:?}", pair.events);
        assert_eq!((fixture.here.contents(&path("x")), fixture.there.contents(&path("x"))), (None, None));
    }
}

#[test]
fn a_docket_without_its_contents_yields_activity_no_longer_exists() {
    let mut fixture = Fixture::new();
    fixture.here.put(&path("mine"), &[7; 20_000]);
    let mut pair = Pair::connected(&mut fixture);
    pair.left = Some(14);
    pair.initiator.start(put("mine", "x", BINARY), &mut pair.caller, &mut fixture.here).unwrap();
    (0..100).for_each(|_| _ = pair.round(&mut fixture));
    let key = lose(pair, &mut fixture).expect("it was cut");
    fixture.there.crash();
    for number in 0..100 {
        let token = format!("begun-{number}");
        crate::ftam::filestore::Disk::discard(&mut fixture.there, &path("x"), &token);
    }
    fixture.locks = Locks::new(100);
    let mut pair = Pair::connected(&mut fixture);
    pair.initiator.recover(&key, &mut pair.caller, &mut fixture.here).unwrap();
    pair.run(&mut fixture);
    match &pair.events[..] {
        [Event::Ended(Err(failure))] => {
            assert_eq!(errors(failure), [ErrorIdentifier::ACTIVITY_NO_LONGER_EXISTS.0]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_recovery_nothing_is_kept() {
    for cut in 0..60 {
        let mut fixture = Fixture::new();
        fixture.here.put(&path("mine"), &[7; 20_000]);
        let ours = initiator::Config { quality: QualityOfService::NO_RECOVERY, ..small() };
        let mut pair = Pair::connected_with(&mut fixture, ours, responder_small());
        pair.left = Some(cut);
        pair.initiator.start(put("mine", "x", BINARY), &mut pair.caller, &mut fixture.here).unwrap();
        (0..100).for_each(|_| _ = pair.round(&mut fixture));
        assert_eq!(lose(pair, &mut fixture), None);
        fixture.is_tidy();
    }
}

#[test]
fn an_unreadable_docket_is_kept() {
    let contents: Vec<u8> = (0..25_000u32).map(|n| n as u8).collect();
    // In the first round, the docket is unreadable while the responder looks for expired dockets; in the
    // second, while the transfer is resumed.
    for fetches in 0..2 {
        let cut = |cut| {
            let mut fixture = Fixture::new();
            fixture.here.put(&path("mine"), &contents);
            let mut pair = Pair::connected(&mut fixture);
            pair.left = Some(cut);
            pair.initiator.start(put("mine", "f", BINARY), &mut pair.caller, &mut fixture.here).unwrap();
            (0..200).for_each(|_| _ = pair.round(&mut fixture));
            let key = lose(pair, &mut fixture)?;
            fixture.here.crash();
            fixture.there.crash();
            fixture.locks = Locks::new(100);
            let is_noted = crate::ftam::filestore::Disk::kept(&mut fixture.there).len() == 1;
            is_noted.then_some((fixture, key))
        };
        let (mut fixture, key) = (1..90).find_map(cut).expect("some cut is in the midst of it");
        fixture.there.fail_after(Call::Fetch, fetches, DiskError::Failed);
        let mut pair = Pair::connected(&mut fixture);
        let kept = crate::ftam::filestore::Disk::kept(&mut fixture.there);
        assert_eq!(kept.len(), 1, "{fetches}: connecting deletes no docket that it cannot read");
        pair.initiator.recover(&key, &mut pair.caller, &mut fixture.here).unwrap();
        pair.run(&mut fixture);
        let ended = pair.events.drain(..).next();
        pair.close(&mut fixture);
        match (fetches, ended) {
            (0, Some(Event::Ended(Ok(Outcome::Done)))) => {
                assert_eq!(fixture.there.contents(&path("f")), Some(&contents[..]));
                fixture.is_tidy();
            }
            (1, Some(Event::Ended(Err(failure)))) => {
                assert_eq!(errors(&failure), [ErrorIdentifier::LOCAL_FAILURE_DEVICE.0]);
                assert_eq!(crate::ftam::filestore::Disk::kept(&mut fixture.there).len(), 1);
            }
            other => panic!("{other:?}"),
        }
    }
}
