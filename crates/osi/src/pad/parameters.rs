//! X.3 parameters: their valid values, and the standard profiles.

use crate::wire::x29::Fault;

/// The highest parameter reference.
pub(super) const COUNT: usize = 22;

/// Parameter references (X.3 §3).
pub(super) mod reference {
    pub(crate) const RECALL: u8 = 1;
    pub(crate) const ECHO: u8 = 2;
    pub(crate) const FORWARDING: u8 = 3;
    pub(crate) const IDLE_TIMER: u8 = 4;
    pub(crate) const DEVICE_CONTROL: u8 = 5;
    pub(crate) const SERVICE_SIGNALS: u8 = 6;
    pub(crate) const BREAK: u8 = 7;
    pub(crate) const DISCARD: u8 = 8;
    pub(crate) const CR_PADDING: u8 = 9;
    pub(crate) const FOLDING: u8 = 10;
    pub(crate) const FLOW_CONTROL: u8 = 12;
    pub(crate) const LF_INSERTION: u8 = 13;
    pub(crate) const LF_PADDING: u8 = 14;
    pub(crate) const EDITING: u8 = 15;
    pub(crate) const DELETE: u8 = 16;
    pub(crate) const DELETE_LINE: u8 = 17;
    pub(crate) const DISPLAY_LINE: u8 = 18;
    pub(crate) const EDITING_SIGNALS: u8 = 19;
    pub(crate) const ECHO_MASK: u8 = 20;
    pub(crate) const PAGE_WAIT: u8 = 22;
}

/// A standard profile (X.28 Table 1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Profile {
    /// 90, the simple standard profile: echo, forwarding on control characters, service signals.
    Simple,
    /// 91, the transparent standard profile: everything is data, forwarded after a pause.
    Transparent,
}

impl Profile {
    /// Returns the profile with this number.
    pub fn of(number: u8) -> Option<Profile> {
        match number {
            90 => Some(Profile::Simple),
            91 => Some(Profile::Transparent),
            _ => None,
        }
    }
}

/// The values of the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters([u8; COUNT]);

impl Parameters {
    /// Returns a profile's values.
    pub fn new(profile: Profile) -> Parameters {
        // Parameter 11 is the speed; 14 stands for 9600 bit/s, since a program does not know it.
        Parameters(match profile {
            Profile::Simple => [1, 1, 126, 0, 1, 1, 2, 0, 0, 0, 14, 1, 0, 0, 0, 127, 24, 18, 1, 0, 0, 0],
            Profile::Transparent => [0, 0, 0, 20, 0, 0, 2, 0, 0, 0, 14, 0, 0, 0, 0, 127, 24, 18, 1, 0, 0, 0],
        })
    }

    /// Returns a parameter's value.
    ///
    /// # Errors
    /// [`Fault::Reference`] if there is no such parameter.
    pub fn get(&self, reference: u8) -> Result<u8, Fault> {
        let place = usize::from(reference).checked_sub(1).ok_or(Fault::Reference)?;
        self.0.get(place).copied().ok_or(Fault::Reference)
    }

    pub(super) fn value(&self, reference: u8) -> u8 {
        self.get(reference).expect("the constants name parameters")
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// [`Fault::Reference`]; [`Fault::ReadOnly`]; [`Fault::Value`] if the value is invalid or not supported.
    pub fn set(&mut self, reference: u8, value: u8) -> Result<(), Fault> {
        let now = self.get(reference)?;
        let is_valid = match reference {
            1 => matches!(value, 0 | 1 | 32..=126),
            2 | 12 => value <= 1,
            3 | 16..=18 => value <= 127,
            4 | 9 | 10 | 14 | 20 | 22 => true,
            5 => value <= 2,
            6 => matches!(value, 0 | 1 | 5),
            7 => value <= 31,
            8 | 15 => value <= 1,
            11 => return Err(Fault::ReadOnly),
            13 => value <= 7,
            19 => matches!(value, 0..=2 | 8 | 32..=126),
            // Not implemented: only the present value.
            _ => value == now,
        };
        if !is_valid {
            return Err(Fault::Value);
        }
        self.0[usize::from(reference) - 1] = value;
        Ok(())
    }

    /// Returns whether a character is a data forwarding character (parameter 3).
    pub(super) fn forwards(&self, octet: u8) -> bool {
        let classes = self.value(reference::FORWARDING);
        let class = match octet & 0x7f {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => 1,
            0x0d => 2,
            0x1b | 0x07 | 0x05 | 0x06 => 4,
            0x7f | 0x18 | 0x12 => 8,
            0x03 | 0x04 => 16,
            0x09..=0x0c => 32,
            0x00..=0x1f => 64,
            _ => 0,
        };
        classes & class != 0
    }

    /// Returns whether a character is echoed (parameters 2 and 20).
    pub(super) fn echoes(&self, octet: u8) -> bool {
        if self.value(reference::ECHO) == 0 {
            return false;
        }
        let is_editing = self.value(reference::EDITING) == 1
            && [reference::DELETE, reference::DELETE_LINE, reference::DISPLAY_LINE]
                .iter()
                .any(|editing| self.value(*editing) == octet);
        let class = match octet & 0x7f {
            _ if is_editing => 64,
            0x0d => 1,
            0x0a => 2,
            0x0b | 0x09 | 0x0c => 4,
            0x07 | 0x08 => 8,
            0x1b | 0x05 => 16,
            0x06 | 0x15 | 0x02 | 0x01 | 0x04 | 0x17 | 0x03 => 32,
            0x00..=0x1f | 0x7f => 128,
            _ => 0,
        };
        self.value(reference::ECHO_MASK) & class == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        let mut parameters = Parameters::new(Profile::Simple);
        for (of, value, result) in [
            (1, 0, Ok(())),
            (1, 5, Err(Fault::Value)),
            (2, 2, Err(Fault::Value)),
            (4, 255, Ok(())),
            (11, 3, Err(Fault::ReadOnly)),
            (5, 3, Err(Fault::Value)),
            (14, 255, Ok(())),
            (22, 24, Ok(())),
            (21, 1, Err(Fault::Value)),
            (21, 0, Ok(())),
            (0, 1, Err(Fault::Reference)),
            (23, 1, Err(Fault::Reference)),
        ] {
            assert_eq!(parameters.set(of, value), result, "{of}:{value}");
        }
        assert_eq!((parameters.get(4), parameters.get(23)), (Ok(255), Err(Fault::Reference)));
    }

    #[test]
    fn the_simple_profile_forwards_on_control_characters() {
        let parameters = Parameters::new(Profile::Simple);
        for octet in 0..=127u8 {
            assert_eq!(parameters.forwards(octet), octet < 32 || octet == 127, "{octet}");
            assert!(parameters.echoes(octet));
        }
        let transparent = Parameters::new(Profile::Transparent);
        assert!(!transparent.forwards(13) && !transparent.echoes(b'a'));
    }
}
