//! Any message of communication management, with the attribute id that names it.

use super::super::mad::{MAD_BYTES, MAD_DATA_BYTES, MadHeader};
use super::connect::{Drep, Dreq, Mra, Rej, Rep, Req, Rtu};
use super::service::{SidrRep, SidrReq};
use kiban_base::Malformed;

/// Declares each message once: variant, attribute id, sentence.
macro_rules! messages {
    ($($name:ident, $attribute:literal, $text:literal;)*) => {
        /// A message of communication management.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Message {
            $(#[doc = $text] $name($name),)*
        }

        impl Message {
            /// Decodes a MAD.
            ///
            /// # Errors
            /// `Truncated` or `TotalLength` unless it has 256 octets; those of [`MadHeader::read`];
            /// `Operation` for another attribute id; those of the message.
            pub fn read(bytes: &[u8]) -> Result<(MadHeader, Message), Malformed> {
                let (header, _) = MadHeader::read(bytes)?;
                let data = bytes[MadHeader::BYTES..].first_chunk().ok_or(Malformed::Truncated)?;
                if bytes.len() > MAD_BYTES {
                    return Err(Malformed::TotalLength);
                }
                let message = match header.attribute {
                    $($attribute => Message::$name($name::read(data)?),)*
                    _ => return Err(Malformed::Operation),
                };
                Ok((header, message))
            }

            /// Returns the attribute id.
            pub const fn attribute(&self) -> u16 {
                match self { $(Message::$name(_) => $attribute,)* }
            }

            fn write(&self, data: &mut [u8; MAD_DATA_BYTES]) {
                match self { $(Message::$name(message) => message.write(data),)* }
            }
        }
    };
}

messages! {
    Req, 0x0010, "Requests a connection.";
    Mra, 0x0011, "Asks the peer to wait longer for an answer.";
    Rej, 0x0012, "Refuses a request or a reply.";
    Rep, 0x0013, "Accepts a request.";
    Rtu, 0x0014, "Confirms a reply: the sender is ready to use the connection.";
    Dreq, 0x0015, "Ends a connection.";
    Drep, 0x0016, "Confirms the end.";
    SidrReq, 0x0017, "Asks for the queue pair of a service.";
    SidrRep, 0x0018, "Answers with it.";
}

impl Message {
    /// Returns the MAD with this transaction id.
    pub fn mad(&self, transaction: u64) -> [u8; MAD_BYTES] {
        let mut bytes = [0; MAD_BYTES];
        MadHeader { transaction, attribute: self.attribute(), ..MadHeader::default() }.write(&mut bytes);
        self.write(bytes.last_chunk_mut().expect("a MAD is longer than its data"));
        bytes
    }
}
