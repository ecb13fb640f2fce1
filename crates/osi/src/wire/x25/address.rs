//! The address block (X.25 §5.2.1): two addresses, one digit per half octet, the second directly after the
//! first.
//!
//! ```text
//! bit A 0   | calling length 4 | called length 4 | called digits, calling digits, filled to an octet |
//! bit A 1   | called length 8 | calling length 8 | called: type 4, plan 4, digits | calling: type, plan, digits |
//! ```

use core::fmt;
use core::str::FromStr;
use kiban_base::Malformed;

/// Maximum number of digits in an address: 15 in X.121, 17 in the long form.
pub const DIGITS_MAX: usize = 17;
/// Maximum number of digits in an address in the short form.
const SHORT_DIGITS_MAX: usize = 15;

/// An address: decimal digits and, in the long form, their type and numbering plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Address {
    digits: [u8; DIGITS_MAX],
    length: u8,
    /// Type of address (TOA) and numbering plan (NPI), half an octet each.
    pub type_and_plan: Option<(u8, u8)>,
}

impl Address {
    /// The absent address.
    pub const NONE: Address = Address { digits: [0; DIGITS_MAX], length: 0, type_and_plan: None };

    /// Returns the digits, each 0 to 9.
    pub fn digits(&self) -> &[u8] {
        &self.digits[..usize::from(self.length)]
    }

    /// Returns whether there are no digits and no type.
    pub fn is_empty(&self) -> bool {
        self.length == 0 && self.type_and_plan.is_none()
    }

    fn push(&mut self, digit: u8) -> Result<(), Malformed> {
        let place = self.digits.get_mut(usize::from(self.length)).ok_or(Malformed::AddressDigits)?;
        if digit > 9 {
            return Err(Malformed::AddressDigits);
        }
        *place = digit;
        self.length += 1;
        Ok(())
    }

    /// Returns the number of half octets in the long form.
    fn long_length(&self) -> usize {
        if self.is_empty() { 0 } else { 2 + usize::from(self.length) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digits().iter().try_for_each(|digit| write!(f, "{digit}"))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self}")?;
        if let Some((kind, plan)) = self.type_and_plan {
            write!(f, ", type {kind}, plan {plan}")?;
        }
        f.write_str(")")
    }
}

/// The text is not an address of up to fifteen decimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAnAddress;

impl fmt::Display for NotAnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an X.121 address has at most 15 characters, all of them decimal digits")
    }
}

impl core::error::Error for NotAnAddress {}

impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Address, NotAnAddress> {
        let mut address = Address::NONE;
        if text.len() > SHORT_DIGITS_MAX {
            return Err(NotAnAddress);
        }
        for digit in text.bytes() {
            address.push(digit.wrapping_sub(b'0')).map_err(|_| NotAnAddress)?;
        }
        Ok(address)
    }
}

/// The called and the calling address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AddressBlock {
    /// The called address.
    pub called: Address,
    /// The calling address.
    pub calling: Address,
}

impl AddressBlock {
    /// Returns whether the long form is needed, in which case the packet's A bit must be set.
    pub fn is_extended(&self) -> bool {
        let long = |address: &Address| {
            address.type_and_plan.is_some() || usize::from(address.length) > SHORT_DIGITS_MAX
        };
        long(&self.called) || long(&self.calling)
    }

    /// Reads a block; `extended` is the packet's A bit.
    ///
    /// # Errors
    /// `Truncated`; `AddressDigits` if an address is too long, has a digit above 9, or in the long form is
    /// too short for its type and plan (§5.2.1.2).
    pub fn read(bytes: &[u8], extended: bool) -> Result<(AddressBlock, usize), Malformed> {
        let mut block = AddressBlock::default();
        let (lengths, at) = match (extended, bytes) {
            (false, [lengths, ..]) => ([lengths & 15, lengths >> 4], 1),
            (true, [called, calling, ..]) => ([*called, *calling], 2),
            _ => return Err(Malformed::Truncated),
        };
        let mut halves = bytes[at..].iter().flat_map(|octet| [octet >> 4, octet & 15]);
        for (address, length) in [&mut block.called, &mut block.calling].into_iter().zip(lengths) {
            let mut digits = usize::from(length);
            let mut next = || halves.next().ok_or(Malformed::Truncated);
            if extended && digits > 0 {
                address.type_and_plan = Some((next()?, next()?));
                // §5.2.1.2: the length includes the type and the plan.
                digits = digits.checked_sub(2).ok_or(Malformed::AddressDigits)?;
            }
            if digits > if extended { DIGITS_MAX } else { SHORT_DIGITS_MAX } {
                return Err(Malformed::AddressDigits);
            }
            for _ in 0..digits {
                address.push(next()?)?;
            }
        }
        let halves: usize = lengths.iter().map(|length| usize::from(*length)).sum();
        Ok((block, at + halves.div_ceil(2)))
    }

    /// Returns the number of bytes that [`AddressBlock::write`] writes.
    pub fn length(&self) -> usize {
        if self.is_extended() {
            2 + (self.called.long_length() + self.calling.long_length()).div_ceil(2)
        } else {
            1 + usize::from(self.called.length + self.calling.length).div_ceil(2)
        }
    }

    /// Writes the block in the short form if possible, otherwise in the long form; returns its length in
    /// bytes.
    ///
    /// # Panics
    /// If the target is too short.
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        let length = self.length();
        let both = [&self.called, &self.calling];
        let extended = self.is_extended();
        let at = if extended {
            bytes[..2].copy_from_slice(&both.map(|address| address.long_length() as u8));
            2
        } else {
            bytes[0] = self.calling.length << 4 | self.called.length;
            1
        };
        bytes[at..length].fill(0);
        // Without a type and plan, use type 0 ("network dependent") and plan 1 (X.121).
        let plan = |address: &Address| {
            let (kind, plan) = address.type_and_plan.unwrap_or((0, 1));
            [kind & 15, plan & 15].into_iter().take(if extended && !address.is_empty() { 2 } else { 0 })
        };
        let halves = both.iter().flat_map(|address| plan(address).chain(address.digits().iter().copied()));
        for (place, half) in halves.enumerate() {
            bytes[at + place / 2] |= if place % 2 == 0 { half << 4 } else { half };
        }
        length
    }
}
