//! The contents of call and clear packets, and of packets with a cause.

use super::address::AddressBlock;
use super::facility::FACILITIES_BYTES_MAX;
use kiban_base::Malformed;

/// Maximum length in bytes of a call's user data without fast select (§6.16).
pub const CALL_USER_DATA_BYTES_MAX: usize = 16;
/// Maximum length in bytes of the user data in a call, call accepted or clear packet with fast select
/// (§6.16).
pub const FAST_SELECT_BYTES_MAX: usize = 128;
/// Maximum length of an interrupt's user data in bytes (§4.3.5).
pub const INTERRUPT_BYTES_MAX: usize = 32;
/// Maximum length of a control packet in bytes: header, cause and diagnostic, addresses in the long form,
/// facilities, user data.
pub const CONTROL_BYTES_MAX: usize = 3 + 2 + 2 + 17 + 1 + FACILITIES_BYTES_MAX + FAST_SELECT_BYTES_MAX;

/// The fields after the header of a call request or a call accepted packet (§5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Call<'a> {
    /// Called and calling address.
    pub addresses: AddressBlock,
    /// The raw facility field; `facilities` decodes it.
    pub facilities: &'a [u8],
    /// Call user data, or called user data.
    pub user_data: &'a [u8],
}

impl<'a> Call<'a> {
    /// Reads the fields after the header; `extended` is the packet's A bit. A call accepted packet may end
    /// after any field.
    ///
    /// # Errors
    /// Any error of [`AddressBlock::read`]; `FacilityLength` if the facility field is longer than
    /// [`FACILITIES_BYTES_MAX`] (§7.1) or exceeds the packet.
    pub fn read(bytes: &'a [u8], extended: bool) -> Result<(Call<'a>, usize), Malformed> {
        if bytes.is_empty() {
            return Ok((Call::default(), 0));
        }
        let (addresses, used) = AddressBlock::read(bytes, extended)?;
        let (facilities, user_data) = split_facilities(&bytes[used..])?;
        Ok((Call { addresses, facilities, user_data }, bytes.len()))
    }

    /// Returns the number of bytes that [`Call::write`] writes.
    pub fn length(&self) -> usize {
        self.addresses.length() + 1 + self.facilities.len() + self.user_data.len()
    }

    /// Writes all fields, present or empty; returns their length in bytes.
    ///
    /// # Panics
    /// If the target is too short, or there are more facilities than [`FACILITIES_BYTES_MAX`].
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        let at = self.addresses.write(bytes);
        at + write_rest(self.facilities, self.user_data, &mut bytes[at..])
    }
}

/// The fields after the header of a clear request (§5.2.3). A clear confirmation has no cause and no
/// diagnostic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clear<'a> {
    /// Cause and diagnostic.
    pub cause: Cause,
    /// The fields of the extended format, if present.
    pub more: Option<Call<'a>>,
}

impl<'a> Clear<'a> {
    /// Reads the fields after the header.
    ///
    /// # Errors
    /// `Truncated` if there is no cause; any error of [`Call::read`].
    pub fn read(bytes: &'a [u8], extended: bool) -> Result<(Clear<'a>, usize), Malformed> {
        let (cause, used) = Cause::read(bytes)?;
        let more = match &bytes[used..] {
            [] => None,
            rest => Some(Call::read(rest, extended)?.0),
        };
        Ok((Clear { cause, more }, bytes.len()))
    }

    /// Returns the number of bytes that [`Clear::write`] writes.
    pub fn length(&self) -> usize {
        // The diagnostic is required if other fields follow it.
        self.more.map_or(self.cause.length(), |more| 2 + more.length())
    }

    /// Writes the fields; returns their length in bytes.
    ///
    /// # Panics
    /// If the target is too short.
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        let Some(more) = self.more else { return self.cause.write(bytes) };
        let diagnostic = Some(self.cause.diagnostic.unwrap_or(0));
        let at = Cause { diagnostic, ..self.cause }.write(bytes);
        at + more.write(&mut bytes[at..])
    }
}

/// The cause and diagnostic of a clear, reset or restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cause {
    /// The cause. If it originated at a DTE, it is zero or has the highest bit set.
    pub cause: u8,
    /// The diagnostic (`diagnostic_name`).
    pub diagnostic: Option<u8>,
}

impl Cause {
    /// Reads one or two octets.
    ///
    /// # Errors
    /// `Truncated` for an empty slice.
    pub fn read(bytes: &[u8]) -> Result<(Cause, usize), Malformed> {
        let (cause, rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
        Ok((Cause { cause: *cause, diagnostic: rest.first().copied() }, bytes.len().min(2)))
    }

    /// Returns the number of bytes that [`Cause::write`] writes.
    pub fn length(&self) -> usize {
        1 + usize::from(self.diagnostic.is_some())
    }

    /// Writes the octets; returns their number.
    ///
    /// # Panics
    /// If the target is too short.
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        bytes[0] = self.cause;
        if let Some(diagnostic) = self.diagnostic {
            bytes[1] = diagnostic;
        }
        self.length()
    }
}

fn split_facilities(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let Some((length, rest)) = bytes.split_first() else { return Ok((&[], &[])) };
    if usize::from(*length) > FACILITIES_BYTES_MAX {
        return Err(Malformed::FacilityLength);
    }
    rest.split_at_checked(usize::from(*length)).ok_or(Malformed::FacilityLength)
}

fn write_rest(facilities: &[u8], user_data: &[u8], bytes: &mut [u8]) -> usize {
    assert!(facilities.len() <= FACILITIES_BYTES_MAX, "{} bytes of facilities", facilities.len());
    bytes[0] = facilities.len() as u8;
    let end = 1 + facilities.len();
    bytes[1..end].copy_from_slice(facilities);
    bytes[end..end + user_data.len()].copy_from_slice(user_data);
    end + user_data.len()
}
