//! Peers that behave as other implementations do, ISODE above all.

use super::common::{TestDir, remote};
use super::peer::{Initiator, Responder, Said, close, data_end, deselect, entry, granted, open, select};
use kiban_osi::wire::ber::{Asn1, Oid};
use kiban_osi::wire::ftam::contents::DirectoryEntry;
use kiban_osi::wire::ftam::{
    AccessRequest, ActionResult, AttributeNames, ContentsTypeName, CreateResponse, DeleteRequest, Diagnostic,
    DiagnosticItem, DiagnosticType, DirectoryParameters, Document, EntityReference, ErrorIdentifier,
    OpenContentsType, Pdu, ReadAttributes, SelectResponse, StateResult, oids,
};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

/// Starts a responder whose directories have the entries that `list` returns for their names.
fn listing(list: impl Fn(&str) -> Vec<ReadAttributes> + Send + 'static) -> Responder {
    let (mut selected, mut is_directory) = (String::new(), false);
    Responder::start(move |pdus| {
        let mut said = Vec::new();
        for pdu in pdus {
            if let Pdu::OpenRequest(request) = pdu {
                is_directory = match &request.contents_type {
                    OpenContentsType::Proposed(contents) => {
                        matches!(Document::of(contents), Some(Document::Directory(_)))
                    }
                    OpenContentsType::Unknown(_) => false,
                };
            }
            if let Pdu::SelectRequest(request) = pdu {
                let strings = request.attributes.pathname.components();
                selected = strings.iter().map(|string| string.text()).collect::<Vec<_>>().join("/");
            }
            match pdu {
                Pdu::ReadRequest(_) => {
                    let entries = if is_directory { list(&selected) } else { Vec::new() };
                    said.extend(entries.into_iter().map(|entry| Said::Entry(Box::new(entry))));
                    said.push(data_end());
                }
                request => said.extend(granted(request).map(Said::Pdu)),
            }
        }
        said
    })
}

/// ISODE's listings contain `.` and `..`, and name the entries of a subdirectory with its own name before.
fn of_isode(directory: &str) -> Vec<ReadAttributes> {
    let names: &[(&str, bool)] = match directory {
        "." => &[(".", true), ("..", true), ("sub", true), ("top", false)],
        "sub" => &[("sub/.", true), ("sub/..", true), ("sub/inner", false)],
        other => panic!("«{other}» is outside the tree"),
    };
    names.iter().map(|(name, is_directory)| entry(name, *is_directory)).collect()
}

#[test]
fn the_entries_dot_and_dot_dot_of_a_peer_are_skipped() {
    let dir = TestDir::new();
    let peer = listing(of_isode);
    let report = dir.run(&["ls", "-r", "--json", &remote(peer.port, "")]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let names = report["entries"].as_array().expect("entries").iter().map(|entry| entry["name"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["sub", "sub/inner", "top"]);
    dir.run(&["get", "-r", "-q", &remote(peer.port, ""), "all"]);
    assert!(fs::read(dir.at("all/sub/inner")).expect("fetched").is_empty());
    assert_eq!(fs::read_dir(dir.at("all")).expect("listed").count(), 2);
}

#[test]
fn the_names_of_a_peer_cannot_write_to_the_terminal() {
    let dir = TestDir::new();
    let peer = listing(|name| match name {
        "sub" => vec![entry("inner", false), entry("exe\u{202e}fdp", false)],
        _ => vec![entry("a\u{1b}[2Jb", false), entry("sub/", true)],
    });
    for command in [&["ls", "-r", &remote(peer.port, "")][..], &["get", "-r", &remote(peer.port, ""), "all"]]
    {
        let output = dir.try_run(command);
        let text = [output.stdout, output.stderr].concat();
        assert!(!text.contains(&0x1b), "{}", String::from_utf8_lossy(&text).escape_debug());
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("a\\u{1b}[2Jb") && text.contains("exe\\u{202e}fdp"), "{text}");
        assert!(!text.contains('\u{202e}'), "the rest of the line runs backwards: {text}");
    }
    // A slash at the end of a directory's name does not hide it.
    assert!(dir.at("all/sub/inner").exists());
    dir.fails(&["get", &remote(peer.port, "a*"), "."], "control character");
}

#[test]
fn a_recursive_listing_is_bounded_and_is_printed_as_it_proceeds() {
    let dir = TestDir::new();
    let endless = listing(|_| vec![entry("one", true), entry("other", true), entry("file", false)]);
    let from = remote(endless.port, "");
    let deep = listing(|_| vec![entry("d", true)]);
    for command in [&["ls", "-r"][..], &["get", "-r", "-q"]] {
        let into: &[&str] = if command[0] == "get" { &["into"] } else { &[] };
        let with = |more: &[&str]| dir.try_run(&[command, more, into].concat());
        let output = with(&["--directories-max", "40", &from]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains("more than 40 directories"), "{output:?}");
        let output = dir.try_run(
            &[&command[..1], &["--directories-max", "1", &remote(endless.port, "*/*")], into].concat(),
        );
        assert!(String::from_utf8_lossy(&output.stderr).contains("more than 1 directories"), "{output:?}");
        let output = with(&[&remote(deep.port, "")]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("more than 32 nested directories"), "{output:?}");
    }
    // The peer stops answering at the second directory; the first one has been printed.
    let silent = {
        let mut lists = 0;
        Responder::start(move |pdus| {
            lists += pdus.iter().filter(|pdu| matches!(pdu, Pdu::SelectRequest(_))).count();
            if lists > 1 {
                return Vec::new();
            }
            let answer = |pdu: &Pdu| match pdu {
                Pdu::ReadRequest(_) => vec![Said::Entry(Box::new(entry("first", true))), data_end()],
                request => granted(request).map(Said::Pdu).into_iter().collect(),
            };
            pdus.iter().flat_map(answer).collect()
        })
    };
    let mut child = dir
        .command(&["ls", "-r", &remote(silent.port, "")])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it was built");
    let out = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let found = std::io::BufRead::lines(out).map_while(Result::ok).any(|line| line.starts_with("first/"));
    child.kill().expect("it is a child of this process");
    child.wait().expect("it is a child of this process");
    assert!(found, "nothing was printed");
}

#[test]
fn an_initiator_with_both_identifiers_of_nbs_9_is_given_the_new_one_and_selectable_names() {
    let dir = TestDir::new();
    fs::create_dir(dir.at("root/d1")).expect("made");
    fs::write(dir.at("root/d1/inner"), b"x").expect("written");
    let server = dir.serve(&[], &[]);
    // ISODE proposes both, the new one first, and uses the last one that is accepted.
    let eve = Initiator::connect(
        server.port,
        &[oids::FTAM_3, oids::NBS_9, oids::NBS_9_OLD],
        &[oids::UNSTRUCTURED_BINARY, oids::NBS_DIRECTORY_ENTRY, oids::NBS_DIRECTORY_ENTRY_OLD],
    );
    let kept = eve.accepted.contents_type_list.as_ref().expect("a list").0.iter();
    let kept: Vec<Oid> = kept
        .filter_map(|name| match name {
            ContentsTypeName::Document(name) => Some(name.0),
            ContentsTypeName::AbstractSyntax(_) => None,
        })
        .collect();
    assert_eq!(kept, [oids::FTAM_3, oids::NBS_9]);
    let names = |directory: &str| {
        let contents = Document::Directory(DirectoryParameters(AttributeNames::KERNEL)).contents_type();
        eve.group(vec![select(directory, AccessRequest::READ), open(contents)]);
        let entries = eve.read();
        eve.group(vec![close(), deselect()]);
        let name = |bytes: Vec<u8>| {
            let (entry, _) = DirectoryEntry::read(&bytes).expect("an entry");
            let name = entry.0.pathname.expect("a name");
            name.components().iter().map(|string| string.text().into_owned()).collect::<Vec<_>>().join("/")
        };
        entries.into_iter().map(name).collect::<Vec<_>>()
    };
    // Each name can be selected as it is.
    for (directory, name) in
        [(".", "d1"), ("/", "/d1"), ("d1", "d1/inner"), ("d1/", "d1/inner"), ("/d1/.", "/d1/inner")]
    {
        assert_eq!(names(directory), [name], "{directory}");
    }
}

/// ISODE answers a failed F-SELECT or F-CREATE alone, and leaves out the responses that would follow it.
#[test]
fn the_refusal_of_a_group_is_shown_and_the_association_is_kept() {
    let dir = TestDir::new();
    fs::write(dir.at("here"), b"x").expect("written");
    let peer = Responder::start(|pdus| {
        let said = DiagnosticItem::new(
            DiagnosticType::PERMANENT,
            ErrorIdentifier::FILENAME_NOT_FOUND,
            EntityReference::RESPONDING_FILE_SERVICE_USER,
            EntityReference::RESPONDING_FILE_SERVICE_USER,
        );
        let diagnostic = Some(Diagnostic(vec![said.with_details("Permission denied")]));
        let (state_result, action_result) = (StateResult::FAILURE, ActionResult::PERMANENT_ERROR);
        let answer = |pdu: &Pdu| match pdu {
            Pdu::SelectRequest(request) => Some(Pdu::SelectResponse(Box::new(SelectResponse {
                state_result,
                action_result,
                diagnostic: diagnostic.clone(),
                ..SelectResponse::new(request.attributes.clone())
            }))),
            Pdu::CreateRequest(request) => Some(Pdu::CreateResponse(Box::new(CreateResponse {
                state_result,
                action_result,
                diagnostic: diagnostic.clone(),
                ..CreateResponse::new(request.initial_attributes.clone())
            }))),
            Pdu::BeginGroupRequest(_) | Pdu::EndGroupRequest(_) => granted(pdu),
            _ => None,
        };
        pdus.iter().filter_map(answer).map(Said::Pdu).collect()
    });
    let (one, other) = (remote(peer.port, "one"), remote(peer.port, "other"));
    for command in [
        &["get", "-q", &one, "to"][..],
        &["mkdir", &one],
        &["put", "-q", "--type", "sequential", "here", &one],
        &["stat", &one],
        &["mv", &one, "two"],
        // Both are refused on one association.
        &["rm", &one, &other],
    ] {
        let output = dir.try_run(command);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let words = "3000 filename not found (Permission denied)";
        let count = if command[0] == "rm" { 2 } else { 1 };
        assert!(error.matches(words).count() == count && !error.contains("1015"), "{command:?}: {error}");
    }
}

/// ISODE's client shows the first diagnostic of the first failed response.
#[test]
fn the_first_failed_response_of_a_group_gives_the_cause() {
    let dir = TestDir::new();
    fs::create_dir_all(dir.at("root/full/inner")).expect("made");
    let server = dir.serve(&[], &[]);
    let eve = Initiator::connect(server.port, &[oids::FTAM_3], &[oids::UNSTRUCTURED_BINARY]);
    let delete = Pdu::DeleteRequest(Box::new(DeleteRequest { shared_ase_information: None }));
    let said = eve.group(vec![select("full", AccessRequest::DELETE_OBJECT), delete]);
    let first = said.iter().find_map(Pdu::diagnostic).expect("a diagnostic");
    assert_eq!(first.0[0].error(), ErrorIdentifier::FILE_CANNOT_BE_DELETED, "{said:?}");
    assert_eq!(
        first.0[0].further_details.as_ref().map(|text| text.text()),
        Some("the directory is not empty".into())
    );
    dir.fails(
        &["rm", &remote(server.port, "full")],
        "3007 file cannot be deleted (the directory is not empty)",
    );
}

#[test]
fn a_text_file_can_be_fetched_as_binary() {
    let dir = TestDir::new();
    fs::write(dir.at("text"), b"one\r\ntwo\n").expect("written");
    let server = dir.serve(&[], &[]);
    for kind in ["text", "sequential"] {
        let there = remote(server.port, kind);
        dir.run(&["put", "-q", "--type", kind, "text", &there]);
        dir.run(&["get", "-q", "--overwrite", "--type", "binary", &there, "back"]);
        assert_eq!(
            fs::read(dir.at("back")).expect("fetched"),
            fs::read(dir.at("root").join(kind)).expect("put")
        );
        dir.fails(&["append", "-q", "--type", "binary", "text", &there], "5036");
    }
}

#[test]
fn a_responder_that_falls_silent_is_given_up() {
    let dir = TestDir::new();
    let peer = Responder::start(|pdus| {
        let answers = pdus.iter().filter(|pdu| !matches!(pdu, Pdu::ReadRequest(_))).filter_map(granted);
        answers.map(Said::Pdu).collect()
    });
    let limits = ["--retries", "0", "--silence-max", "5"];
    let [get, list] = [remote(peer.port, "x"), remote(peer.port, "")];
    for command in [&["get", &get, "."][..], &["ls", &list]] {
        dir.fails(&[command, &limits].concat(), "no data moved for 5s");
    }
}

#[test]
fn the_session_layers_reason_for_a_refusal_is_shown() {
    let dir = TestDir::new();
    for (code, words) in [(0x84, "try --session-version 2"), (0x81, "the session selector is unknown")] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("bound").port();
        let peer = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("the client connects");
            socket.read_exact(&mut [0; 11]).expect("a connect request");
            socket.write_all(&[3, 0, 0, 11, 6, 0xd0, 0, 1, 0, 1, 0]).expect("the client reads");
            assert!(socket.read(&mut [0; 4096]).expect("a CONNECT") > 0);
            // REFUSE with a reason code (X.225 §8.3.4).
            socket.write_all(&[3, 0, 0, 12, 2, 0xf0, 0x80, 12, 3, 50, 1, code]).expect("the client reads");
            let _ = socket.read_to_end(&mut Vec::new());
        });
        dir.fails(&["ls", "--retries", "0", &remote(port, "")], words);
        peer.join().expect("the peer did its part");
    }
}
