//! X.28 commands.
//!
//! ```text
//! [R,N..,G..-]ADDRESS[DTEXT | PTEXT]   call; R: reverse charging, N: user (NUI), G: closed user group;
//!                                      D shows the user data, P hides it
//! CLR   STAT   RESET   INT             clear; status; reset; interrupt
//! PAR?  PAR?1,2   SET1:0,2:1   SET?1:0 read; set; set and read parameters
//! RPAR?  RPAR?1  RSET1:0  RSET?1:0     the same for the parameters of a PAD at the other end
//! PROF90   ICLR                        take a profile; invite the other end to clear
//! BREAK                                an extension: what the break key does
//! ```

use super::parameters::Profile;
use super::{LINE_BYTES_MAX, PROTOCOL};
use crate::wire::x29::Message;
use crate::x25::{Address, AddressBlock, Call, Facilities};
use alloc::string::String;
use alloc::vec::Vec;

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Calls a host.
    Select(Call),
    /// Clears the call.
    Clear,
    /// Asks whether there is a call.
    Status,
    /// Resets the circuit.
    Reset,
    /// Sends an interrupt.
    Interrupt,
    /// Does what the break key does.
    Break,
    /// Shows parameters; without any, all.
    Read(Vec<u8>),
    /// Sets parameters.
    Set(Vec<(u8, u8)>),
    /// Sets parameters and shows them.
    SetAndRead(Vec<(u8, u8)>),
    /// Sends a message to a PAD at the other end: reads or sets its parameters, or invites it to clear.
    Remote(Message),
    /// Sets all parameters to those of a profile.
    Profile(Profile),
}

/// The line is not a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandError;

impl Command {
    /// Parses a command line; letters may be small, and spaces are ignored outside user data.
    ///
    /// # Errors
    /// The line is not a command, or too long.
    pub fn parse(line: &str) -> Result<Command, CommandError> {
        if line.len() > LINE_BYTES_MAX {
            return Err(CommandError);
        }
        let word: String = line.chars().filter(|c| *c != ' ').map(|c| c.to_ascii_uppercase()).collect();
        match word.as_str() {
            "CLR" => return Ok(Command::Clear),
            "STAT" => return Ok(Command::Status),
            "RESET" => return Ok(Command::Reset),
            "INT" => return Ok(Command::Interrupt),
            "BREAK" => return Ok(Command::Break),
            "ICLR" => return Ok(Command::Remote(Message::InvitationToClear)),
            _ => {}
        }
        if let Some(list) = word.strip_prefix("PAR?") {
            return numbers(list).map(Command::Read);
        }
        if let Some(list) = word.strip_prefix("SET?") {
            return pairs(list).map(Command::SetAndRead);
        }
        if let Some(list) = word.strip_prefix("SET") {
            return pairs(list).map(Command::Set);
        }
        if let Some(list) = word.strip_prefix("RPAR?") {
            return numbers(list).map(|references| Command::Remote(Message::Read(references)));
        }
        if let Some(list) = word.strip_prefix("RSET?") {
            return pairs(list).map(|pairs| Command::Remote(Message::SetAndRead(pairs)));
        }
        if let Some(list) = word.strip_prefix("RSET") {
            return pairs(list).map(|pairs| Command::Remote(Message::Set(pairs)));
        }
        if let Some(number) = word.strip_prefix("PROF") {
            let number = number.parse().map_err(|_| CommandError)?;
            return Profile::of(number).map(Command::Profile).ok_or(CommandError);
        }
        select(line.trim()).map(Command::Select)
    }
}

fn numbers(list: &str) -> Result<Vec<u8>, CommandError> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    list.split(',').map(|number| number.parse().map_err(|_| CommandError)).collect()
}

fn pairs(list: &str) -> Result<Vec<(u8, u8)>, CommandError> {
    let pair = |pair: &str| {
        let (reference, value) = pair.split_once(':')?;
        Some((reference.parse().ok()?, value.parse().ok()?))
    };
    list.split(',').map(|text| pair(text).ok_or(CommandError)).collect()
}

/// Parses a selection (X.28 §3.5.15).
fn select(line: &str) -> Result<Call, CommandError> {
    // User data may contain a hyphen, too.
    let (facilities, rest) = match line.split_once('-') {
        Some((facilities, rest)) if facilities.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            (facilities, rest)
        }
        _ => ("", line),
    };
    let mut call = Call::default();
    for facility in facilities.split(',').filter(|facility| !facility.is_empty()) {
        self::facility(facility, &mut call.facilities)?;
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (address, user_data) = rest.split_at(digits);
    let called: Address = address.parse().map_err(|_| CommandError)?;
    if called.is_empty() {
        return Err(CommandError);
    }
    call.addresses = AddressBlock { called, calling: Address::NONE };
    call.user_data = PROTOCOL.to_vec();
    let mut letters = user_data.chars();
    match letters.next() {
        None => {}
        // §3.5.15.3: up to 12 characters.
        Some('D' | 'd' | 'P' | 'p' | '*') if (1..=12).contains(&letters.as_str().len()) => {
            call.user_data.extend(letters.as_str().bytes());
        }
        Some(_) => return Err(CommandError),
    }
    Ok(call)
}

/// Adds a facility: reverse charging, a network user identification, or a closed user group.
fn facility(text: &str, facilities: &mut Facilities) -> Result<(), CommandError> {
    /// The facility code of a closed user group, basic format.
    const CLOSED_USER_GROUP: u8 = 0x03;
    /// The facility code of a network user identification.
    const NUI: u8 = 0xc6;
    let (letter, rest) = text.split_at_checked(1).ok_or(CommandError)?;
    match (letter, rest) {
        ("R" | "r", "") => facilities.reverse_charging = true,
        ("N" | "n", user) if (1..=64).contains(&user.len()) => {
            facilities.others.extend([NUI, user.len() as u8]);
            facilities.others.extend(user.bytes());
        }
        ("G" | "g", number) => {
            let number: u8 = number.parse().ok().filter(|number| *number <= 99).ok_or(CommandError)?;
            facilities.others.extend([CLOSED_USER_GROUP, ((number / 10) << 4) | (number % 10)]);
        }
        _ => return Err(CommandError),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn call(called: &str, user_data: &[u8]) -> Call {
        let called = called.parse().expect("digits");
        let addresses = AddressBlock { called, ..AddressBlock::default() };
        Call { addresses, user_data: [&PROTOCOL, user_data].concat(), ..Call::default() }
    }

    #[test]
    fn commands_are_parsed() {
        let mut reverse = call("4567", b"");
        reverse.facilities.reverse_charging = true;
        reverse.facilities.others = vec![3, 0x12];
        let mut user = call("4567", b"");
        user.facilities.others = b"\xc6\x05Eve7x".to_vec();
        for (line, command) in [
            ("clr", Ok(Command::Clear)),
            ("STAT", Ok(Command::Status)),
            ("par?", Ok(Command::Read(vec![]))),
            ("PAR? 1,2", Ok(Command::Read(vec![1, 2]))),
            ("set 2:0, 3:126", Ok(Command::Set(vec![(2, 0), (3, 126)]))),
            ("SET? 4:20", Ok(Command::SetAndRead(vec![(4, 20)]))),
            ("rpar?", Ok(Command::Remote(Message::Read(vec![])))),
            ("RPAR? 2", Ok(Command::Remote(Message::Read(vec![2])))),
            ("RSET 2:0", Ok(Command::Remote(Message::Set(vec![(2, 0)])))),
            ("rset? 2:0", Ok(Command::Remote(Message::SetAndRead(vec![(2, 0)])))),
            ("RSET", Err(CommandError)),
            ("iclr", Ok(Command::Remote(Message::InvitationToClear))),
            ("prof 91", Ok(Command::Profile(Profile::Transparent))),
            ("prof 7", Err(CommandError)),
            ("45678901", Ok(Command::Select(call("45678901", b"")))),
            ("4567Dsecret", Ok(Command::Select(call("4567", b"secret")))),
            ("4567Da-b", Ok(Command::Select(call("4567", b"a-b")))),
            ("4567D", Err(CommandError)),
            ("4567Dthirteen char", Err(CommandError)),
            ("R,G12-4567", Ok(Command::Select(reverse))),
            ("NEve7x-4567", Ok(Command::Select(user))),
            ("N-4567", Err(CommandError)),
            ("X-4567", Err(CommandError)),
            ("-4567", Err(CommandError)),
            ("1234567890123456", Err(CommandError)),
            ("SET", Err(CommandError)),
            ("SET 1:256", Err(CommandError)),
            ("hello", Err(CommandError)),
            ("", Err(CommandError)),
        ] {
            assert_eq!(Command::parse(line), command, "{line}");
        }
    }
}
