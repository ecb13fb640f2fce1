//! The PAD with a terminal and a host that the tests play.

use super::{Output, Pad, Profile};
use crate::wire::x29::{Error, Fault, Message};
use crate::x25::{Call, Cause, Indication, Sizes};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::Instant;

struct World {
    pad: Pad,
    now: Instant,
}

impl World {
    fn new(profile: Profile) -> World {
        World { pad: Pad::new(profile), now: Instant::ZERO }
    }

    /// A PAD whose call was accepted.
    fn connected(profile: Profile) -> World {
        let mut world = World::new(profile);
        world.pad.call(Call::default());
        let sizes = Sizes::same(128, 2);
        world.pad.on_indication(Indication::Accepted { channel: 1, sizes, call: Call::default() });
        world.outputs();
        world
    }

    fn types(&mut self, text: &str) -> Vec<Output> {
        self.pad.on_terminal(text.as_bytes(), self.now);
        self.outputs()
    }

    fn outputs(&mut self) -> Vec<Output> {
        core::iter::from_fn(|| self.pad.poll()).collect()
    }

    fn host(&mut self, data: &[u8], qualifier: bool) -> Vec<Output> {
        let data = data.to_vec().into();
        self.pad.on_indication(Indication::Data { channel: 1, data, qualifier, delivery: false });
        self.outputs()
    }
}

fn shown(outputs: &[Output]) -> String {
    let octets: Vec<u8> = outputs
        .iter()
        .flat_map(|output| if let Output::Terminal(octets) = output { octets.clone() } else { vec![] })
        .collect();
    String::from_utf8(octets).expect("text")
}

fn sent(outputs: &[Output]) -> Vec<(Vec<u8>, bool)> {
    let units = outputs.iter().filter_map(|output| match output {
        Output::Data(data, qualifier) => Some((data.clone(), *qualifier)),
        _ => None,
    });
    units.collect()
}

#[test]
fn a_user_calls_talks_and_clears() {
    let mut world = World::new(Profile::Simple);
    let outputs = world.types("stat\r");
    assert_eq!(shown(&outputs), "stat\r\n\r\nFREE\r\n");
    let outputs = world.types("45678901Dhello\r");
    let [.., Output::Call(call)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(call.addresses.called.to_string(), "45678901");
    assert_eq!(call.user_data, b"\x01\0\0\0hello");
    let sizes = Sizes::same(128, 2);
    world.pad.on_indication(Indication::Accepted { channel: 1, sizes, call: Call::default() });
    assert_eq!(shown(&world.outputs()), "\r\nCOM\r\n");

    // Characters are echoed, and forwarded with the carriage return.
    let outputs = world.types("ls\r");
    assert_eq!((shown(&outputs).as_str(), sent(&outputs)), ("ls\r", vec![(b"ls\r".to_vec(), false)]));
    assert_eq!(shown(&world.host(b"a b\r\n", false)), "a b\r\n");

    // The recall character leads to the command state, and a command back to data transfer.
    let outputs = world.types("\x10stat\r");
    assert_eq!(shown(&outputs), "stat\r\n\r\nENGAGED\r\n");
    assert_eq!(sent(&world.types("x\r")), [(b"x\r".to_vec(), false)]);
    assert_eq!(sent(&world.types("\x10\x10\r")), [(b"\x10".to_vec(), false), (b"\r".to_vec(), false)]);
    let outputs = world.types("\x10clr\r");
    assert!(outputs.contains(&Output::Clear));
    world.pad.on_indication(Indication::ClearConfirmed { channel: 1 });
    assert_eq!(shown(&world.outputs()), "\r\nCLR CONF\r\n");
    assert!(world.pad.is_idle());
}

#[test]
fn a_host_cannot_keep_the_user_from_clearing() {
    let mut world = World::connected(Profile::Simple);
    world.pad.set_escape(0x1d);
    // The host disables the recall character and flow control, after the user has stopped the output.
    world.types("\x13");
    assert!(!world.pad.takes_data());
    world.host(&[2, 1, 0, 12, 0], true);
    assert!(world.pad.takes_data());
    assert!(!world.types("\x10clr\r").contains(&Output::Clear));
    assert!(world.types("\x1dclr\r").contains(&Output::Clear));
    // A second clear does not wait for the host.
    assert!(world.types("clr\r").contains(&Output::Clear));
    world.pad.on_indication(Indication::Down);
    assert!(world.pad.is_idle());
}

#[test]
fn clears_and_resets_are_shown() {
    for (cause, by_peer, text) in [
        (0x00, true, "CLR DTE C:0 D:7"),
        (0x01, true, "CLR OCC C:1 D:7"),
        (0x8d, true, "CLR NP C:141 D:7"),
        (0x13, false, "CLR ERR C:19 D:7"),
    ] {
        let mut world = World::connected(Profile::Simple);
        let cause = Cause { cause, diagnostic: Some(7) };
        world.pad.on_indication(Indication::Cleared { channel: 1, by_peer, cause, user_data: Vec::new() });
        assert_eq!(shown(&world.outputs()).trim(), text);
    }
    let mut world = World::connected(Profile::Simple);
    let cause = Cause { cause: 0, diagnostic: Some(3) };
    world.pad.on_indication(Indication::Reset { channel: 1, by_peer: true, cause });
    assert_eq!(shown(&world.outputs()).trim(), "RESET DTE C:0 D:3");
}

#[test]
fn the_transparent_profile_forwards_after_a_pause_or_a_full_packet() {
    let mut world = World::connected(Profile::Transparent);
    assert_eq!(world.types("a\x10\r"), []);
    let due = world.pad.deadline();
    assert_eq!(due, Instant::ZERO + Duration::from_secs(1));
    world.pad.settle(due);
    assert_eq!(sent(&world.outputs()), [(b"a\x10\r".to_vec(), false)]);
    assert_eq!(world.pad.deadline(), Instant::NEVER);
    let text = "x".repeat(130);
    assert_eq!(sent(&world.types(&text)), [(vec![b'x'; 128], false)]);
}

#[test]
fn a_line_is_edited_before_it_is_sent() {
    let mut world = World::connected(Profile::Simple);
    world.types("\x10set 15:1,19:2\r");
    let outputs = world.types("ab\x7fc\r");
    assert_eq!(
        (shown(&outputs).as_str(), sent(&outputs)),
        ("ab\x08 \x08c\r", vec![(b"ac\r".to_vec(), false)])
    );
    assert_eq!(sent(&world.types("junk\x18ok\r")), [(b"ok\r".to_vec(), false)]);
    assert_eq!(shown(&world.types("ok\x12")), "ok\r\nok");
}

#[test]
fn the_host_sets_and_reads_parameters() {
    let mut world = World::connected(Profile::Simple);
    let set = Message::Set(vec![(2, 0), (3, 2)]).write();
    assert_eq!(world.host(&set, true), []);
    // There is no echo any more.
    assert_eq!(shown(&world.types("secret\r")), "");
    let read = world.host(&Message::Read(vec![2, 3]).write(), true);
    assert_eq!(sent(&read), [(Message::Indication(vec![(2, Ok(0)), (3, Ok(2))]).write(), true)]);
    let set = world.host(&Message::SetAndRead(vec![(2, 1), (11, 2), (40, 1)]).write(), true);
    let indication =
        Message::Indication(vec![(2, Ok(1)), (11, Err(Fault::ReadOnly)), (40, Err(Fault::Reference))]);
    assert_eq!(sent(&set), [(indication.write(), true)]);
    let set = world.host(&Message::Set(vec![(2, 9)]).write(), true);
    assert_eq!(sent(&set), [(Message::Indication(vec![(2, Err(Fault::Value))]).write(), true)]);
    // Without parameters, all get their initial values.
    world.host(&Message::Set(vec![]).write(), true);
    assert_eq!(world.pad.parameters().get(3), Ok(126));
    let all = sent(&world.host(&Message::Read(vec![]).write(), true));
    assert_eq!(all[0].0.len(), 1 + 2 * 22);
}

#[test]
fn wrong_messages_are_answered_with_an_error() {
    let mut world = World::connected(Profile::Simple);
    for (message, error) in [
        (&[][..], Error::Empty),
        (&[0x0f], Error::Code(0x0f)),
        (&[2, 1], Error::Format(2)),
        (&[0, 1, 1], Error::Unsolicited(0)),
        (&[7, 1, 2], Error::Reselection(7)),
        (&[2; 400], Error::Long(2)),
    ] {
        let answer = world.host(message, true);
        assert_eq!(sent(&answer), [(Message::Error(error).write(), true)], "{message:?}");
    }
    // An error is not answered, or two PADs would talk for ever.
    assert_eq!(world.host(&[5, 1, 9], true), []);
}

#[test]
fn an_invitation_to_clear_sends_what_is_assembled_first() {
    let mut world = World::connected(Profile::Simple);
    world.types("bye");
    let outputs = world.host(&[1], true);
    assert_eq!(outputs, [Output::Data(b"bye".to_vec(), false), Output::Clear]);
}

#[test]
fn a_break_does_what_parameter_7_says() {
    for (value, expected) in [
        (0, vec![]),
        (1, vec![Output::Interrupt(vec![0])]),
        (2, vec![Output::Reset]),
        (21, vec![Output::Interrupt(vec![0]), Output::Data(vec![3, 8, 1], true)]),
    ] {
        let mut world = World::connected(Profile::Simple);
        world.host(&Message::Set(vec![(7, value)]).write(), true);
        world.pad.on_break();
        assert_eq!(world.outputs(), expected, "{value}");
        // After a break that discards, output is dropped until the host sets parameter 8 back.
        let is_dropped = shown(&world.host(b"late", false)).is_empty();
        assert_eq!(is_dropped, value == 21);
        world.host(&Message::Set(vec![(8, 0)]).write(), true);
        assert_eq!(shown(&world.host(b"new", false)), "new");
    }
}

#[test]
fn output_is_folded_padded_and_given_line_feeds() {
    let mut world = World::connected(Profile::Simple);
    world.host(&Message::Set(vec![(10, 4), (13, 1)]).write(), true);
    assert_eq!(shown(&world.host(b"abcdef\rgh", false)), "abcd\r\nef\r\ngh");
    world.host(&Message::Set(vec![(10, 0), (13, 0), (9, 2)]).write(), true);
    assert_eq!(shown(&world.host(b"a\rb", false)), "a\r\0\0b");
}

#[test]
fn parameters_are_shown_and_long_lines_refused() {
    let mut world = World::new(Profile::Simple);
    assert!(shown(&world.types("par? 1,2,99\r")).ends_with("PAR1:1,2:1,99:INV\r\n"));
    assert!(shown(&world.types("set 11:1\r")).ends_with("PAR11:INV\r\n"));
    assert!(shown(&world.types("set? 4:3\r")).ends_with("PAR4:3\r\n"));
    let long = "1".repeat(10_000);
    assert!(shown(&world.types(&long)).len() <= super::LINE_BYTES_MAX);
    assert!(shown(&world.types("\r")).ends_with("ERR\r\n"));
    for line in ["clr\r", "int\r", "nonsense\r"] {
        assert!(shown(&world.types(line)).ends_with("ERR\r\n"), "{line}");
    }
}

#[test]
fn a_stopped_terminal_takes_no_data() {
    let mut world = World::connected(Profile::Simple);
    world.types("\x13");
    assert!(!world.pad.takes_data());
    world.types("\x11");
    assert!(world.pad.takes_data());
}

#[test]
fn line_feeds_are_padded_and_pages_wait_for_x_on() {
    let mut world = World::connected(Profile::Simple);
    world.host(&Message::Set(vec![(14, 2)]).write(), true);
    assert_eq!(shown(&world.host(b"a\nb", false)), "a\n\0\0b");
    world.host(&Message::Set(vec![(13, 1), (14, 0), (22, 2)]).write(), true);
    let mut page = shown(&world.host(b"1\r2\n3\n4\n5", false));
    assert_eq!(page, "1\r\n2\n\r\nPAGE\r\n");
    assert!(!world.pad.takes_data());
    assert_eq!(shown(&world.host(b"\n6", false)), "");
    page = shown(&world.types("\x11"));
    assert_eq!(page, "3\n4\n\r\nPAGE\r\n");
    // A user who needs no pages gets the rest.
    world.types("\x10");
    page = shown(&world.types("set 22:0\r"));
    assert!(page.ends_with("5\n6"), "{page:?}");
    assert!(world.pad.takes_data());
    // And so does one whose call has ended.
    world.host(&Message::Set(vec![(22, 1)]).write(), true);
    world.host(b"7\n8", false);
    world.pad.on_indication(Indication::Down);
    assert!(shown(&world.outputs()).starts_with('8'));
}

#[test]
fn a_terminal_is_stopped_while_there_is_no_room() {
    let mut world = World::connected(Profile::Simple);
    for (has_room, expected) in [(true, ""), (false, "\x13"), (false, ""), (true, "\x11"), (true, "")] {
        world.pad.set_room(has_room);
        assert_eq!(shown(&world.outputs()), expected);
    }
    world.host(&Message::Set(vec![(5, 0)]).write(), true);
    world.pad.set_room(false);
    assert_eq!(shown(&world.outputs()), "");
}

#[test]
fn a_user_reads_and_sets_the_parameters_of_a_pad_at_the_other_end() {
    let mut world = World::connected(Profile::Simple);
    // An indication that nobody asked for is an error.
    let error = Message::Error(Error::Unsolicited(0)).write();
    assert_eq!(sent(&world.host(&[0, 2, 1], true)), [(error, true)]);

    assert_eq!(sent(&world.types("\x10rpar?2,3\r")), [(Message::Read(vec![2, 3]).write(), true)]);
    let outputs = world.host(&[0, 2, 1, 0x83, 1], true);
    assert_eq!((shown(&outputs).trim(), sent(&outputs)), ("RPAR2:1,3:INV", vec![]));
    assert_eq!(sent(&world.types("\x10rset 2:0\r")), [(Message::Set(vec![(2, 0)]).write(), true)]);
    assert_eq!(sent(&world.types("\x10rset?2:0\r")), [(Message::SetAndRead(vec![(2, 0)]).write(), true)]);
    assert_eq!(world.pad.parameters().get(2), Ok(1), "the PAD's own parameter");
    assert_eq!(sent(&world.types("\x10iclr\r")), [(Message::InvitationToClear.write(), true)]);

    // Without a call there is no other end.
    let mut world = World::new(Profile::Simple);
    assert!(shown(&world.types("iclr\r")).contains("ERR"));
}
