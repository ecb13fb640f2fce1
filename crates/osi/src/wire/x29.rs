//! X.29: messages between a PAD and a host, in units with the Q bit.
//!
//! ```text
//! | 0000, code 4 | parameters: reference 8, value 8, ... |      error and reselection have other contents
//! ```
//!
//! Rules     a parameter field is a sequence of pairs. In a parameter indication, bit 8 of a reference marks
//!           a parameter that could not be read or set; its value is then a reason ([`Fault`]).
//! Limits    [`PARAMETERS_MAX`] pairs in a message; a longer message is answered as too long.
//! Not implemented  national parameters, which follow a separator (reference 0), are skipped; reselection is
//!                  decoded only as far as its code.

use alloc::vec::Vec;

/// Maximum number of pairs in a message: every parameter twice, and some more.
pub const PARAMETERS_MAX: usize = 64;

/// The flag of a reference whose parameter could not be read or set.
const INVALID: u8 = 0x80;

/// Why a parameter could not be read or set (X.29 Table 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// There is no such parameter.
    Reference,
    /// The value is invalid, or not supported.
    Value,
    /// The parameter can only be read.
    ReadOnly,
    /// Another reason.
    Other(u8),
}

impl Fault {
    fn code(self) -> u8 {
        match self {
            Fault::Reference => 1,
            Fault::Value => 2,
            Fault::ReadOnly => 4,
            Fault::Other(code) => code,
        }
    }

    fn of(code: u8) -> Fault {
        match code {
            1 => Fault::Reference,
            2 => Fault::Value,
            4 => Fault::ReadOnly,
            code => Fault::Other(code),
        }
    }
}

/// A parameter of an indication: its reference, and its value or why there is none.
pub type Indicated = (u8, Result<u8, Fault>);

/// The errors that an error message reports (X.29 Table 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// The message had no code.
    Empty,
    /// The message code is unknown.
    Code(u8),
    /// The parameter field has a wrong format.
    Format(u8),
    /// A parameter indication was not requested.
    Unsolicited(u8),
    /// The message is too long.
    Long(u8),
    /// Reselection is not allowed.
    Reselection(u8),
    /// Another error, with its type and the octets that follow.
    Other(u8),
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// The values of parameters, which answers a read, or a set that failed.
    Indication(Vec<Indicated>),
    /// The host invites the PAD to clear the call.
    InvitationToClear,
    /// Sets parameters; without any, the PAD sets all to their initial values.
    Set(Vec<(u8, u8)>),
    /// Sets parameters and requests their values.
    SetAndRead(Vec<(u8, u8)>),
    /// Requests the values of parameters; without any, of all.
    Read(Vec<u8>),
    /// The other side has received a break; with `true`, the PAD discards output until parameter 8 is reset.
    Break(bool),
    /// A message could not be processed.
    Error(Error),
    /// Requests that the PAD calls another host.
    Reselection,
}

/// What is wrong with a message, and its code.
fn field<T>(code: u8, bytes: &[u8], pair: impl Fn(u8, u8) -> T) -> Result<Vec<T>, Error> {
    if bytes.len() > PARAMETERS_MAX * 2 {
        return Err(Error::Long(code));
    }
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Error::Format(code));
    }
    // The references after a separator belong to a network, and are skipped.
    let own = pairs.iter().take_while(|[reference, _]| *reference != 0);
    Ok(own.map(|[reference, value]| pair(*reference, *value)).collect())
}

impl Message {
    /// Decodes a message.
    ///
    /// # Errors
    /// The error with which to answer.
    pub fn read(bytes: &[u8]) -> Result<Message, Error> {
        let (code, rest) = bytes.split_first().ok_or(Error::Empty)?;
        let code = *code;
        match code {
            0 => field(code, rest, |reference, value| match reference & INVALID {
                0 => (reference, Ok(value)),
                _ => (reference & !INVALID, Err(Fault::of(value))),
            })
            .map(Message::Indication),
            1 => Ok(Message::InvitationToClear),
            2 => field(code, rest, |reference, value| (reference, value)).map(Message::Set),
            3 => match rest {
                [] => Ok(Message::Break(false)),
                [8, 1] => Ok(Message::Break(true)),
                _ => Err(Error::Format(code)),
            },
            4 => field(code, rest, |reference, _| reference).map(Message::Read),
            5 => Ok(Message::Error(match *rest {
                [0, ..] => Error::Empty,
                [1, of, ..] => Error::Code(of),
                [2, of, ..] => Error::Format(of),
                [4, of, ..] => Error::Unsolicited(of),
                [5, of, ..] => Error::Long(of),
                [6, of, ..] => Error::Reselection(of),
                [kind, ..] => Error::Other(kind),
                [] => return Err(Error::Format(code)),
            })),
            6 => field(code, rest, |reference, value| (reference, value)).map(Message::SetAndRead),
            7 | 8 => Ok(Message::Reselection),
            code => Err(Error::Code(code)),
        }
    }

    /// Encodes the message. A read has value 0 beside each reference.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let pairs = |bytes: &mut Vec<u8>, pairs: &[(u8, u8)]| {
            bytes.extend(pairs.iter().flat_map(|(reference, value)| [*reference, *value]));
        };
        match self {
            Message::Indication(parameters) => {
                bytes.push(0);
                for (reference, value) in parameters {
                    match value {
                        Ok(value) => bytes.extend([*reference, *value]),
                        Err(fault) => bytes.extend([reference | INVALID, fault.code()]),
                    }
                }
            }
            Message::InvitationToClear => bytes.push(1),
            Message::Set(parameters) => {
                bytes.push(2);
                pairs(&mut bytes, parameters);
            }
            Message::Break(discards) => {
                bytes.push(3);
                if *discards {
                    bytes.extend([8, 1]);
                }
            }
            Message::Read(references) => {
                bytes.push(4);
                bytes.extend(references.iter().flat_map(|reference| [*reference, 0]));
            }
            Message::Error(error) => {
                bytes.push(5);
                match *error {
                    Error::Empty => bytes.push(0),
                    Error::Code(of) => bytes.extend([1, of]),
                    Error::Format(of) => bytes.extend([2, of]),
                    Error::Unsolicited(of) => bytes.extend([4, of]),
                    Error::Long(of) => bytes.extend([5, of]),
                    Error::Reselection(of) => bytes.extend([6, of]),
                    Error::Other(kind) => bytes.push(kind),
                }
            }
            Message::SetAndRead(parameters) => {
                bytes.push(6);
                pairs(&mut bytes, parameters);
            }
            Message::Reselection => bytes.push(7),
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn messages_are_encoded_as_in_the_standard() {
        for (message, bytes) in [
            (Message::Set(vec![(2, 0), (3, 2)]), &[2, 2, 0, 3, 2][..]),
            (Message::Set(vec![]), &[2]),
            (Message::SetAndRead(vec![(1, 0)]), &[6, 1, 0]),
            (Message::Read(vec![4, 11]), &[4, 4, 0, 11, 0]),
            (
                Message::Indication(vec![
                    (4, Ok(20)),
                    (99, Err(Fault::Reference)),
                    (11, Err(Fault::ReadOnly)),
                ]),
                &[0, 4, 20, 99 | 0x80, 1, 11 | 0x80, 4],
            ),
            (Message::InvitationToClear, &[1]),
            (Message::Break(true), &[3, 8, 1]),
            (Message::Break(false), &[3]),
            (Message::Error(Error::Code(9)), &[5, 1, 9]),
            (Message::Error(Error::Empty), &[5, 0]),
        ] {
            assert_eq!(message.write(), bytes);
            assert_eq!(Message::read(bytes), Ok(message));
        }
    }

    #[test]
    fn wrong_messages_name_their_error() {
        for (bytes, error) in [
            (&[][..], Error::Empty),
            (&[9], Error::Code(9)),
            (&[0x12], Error::Code(0x12)),
            (&[2, 1], Error::Format(2)),
            (&[3, 1, 1], Error::Format(3)),
            (&[5], Error::Format(5)),
            (&[2; 2 * PARAMETERS_MAX + 3], Error::Long(2)),
        ] {
            assert_eq!(Message::read(bytes), Err(error), "{bytes:?}");
        }
        // What follows a separator is for a network.
        assert_eq!(Message::read(&[2, 2, 1, 0, 0, 2, 0]), Ok(Message::Set(vec![(2, 1)])));
    }
}
