//! Options of the IPv4 header (RFC 791 §3.1, RFC 2113, RFC 1122 §3.2.1.8).
//!
//! Purpose          iterate over the options of a received header; every length is validated before it is
//!                  used.
//!
//! ```text
//! | kind 8 |                     0 end of list, 1 no operation
//! | kind 8 | length 8 | data     all others; the length counts kind and length too
//! ```

use kiban_base::Malformed;

/// End of the list.
pub const END: u8 = 0;
/// No operation: padding between options.
pub const NO_OPERATION: u8 = 1;
/// Record route.
pub const RECORD_ROUTE: u8 = 7;
/// Internet timestamp.
pub const TIMESTAMP: u8 = 68;
/// Loose source and record route.
pub const LOOSE_SOURCE_ROUTE: u8 = 131;
/// Strict source and record route.
pub const STRICT_SOURCE_ROUTE: u8 = 137;
/// Router alert (RFC 2113).
pub const ROUTER_ALERT: u8 = 148;

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item<'a> {
    /// The option's kind: copied flag, class and number.
    pub kind: u8,
    /// Offset of the option within the options, bytes.
    pub at: usize,
    /// The data after kind and length.
    pub data: &'a [u8],
}

/// An iterator over options. It skips padding, and ends at the end-of-list option, at the end of the bytes,
/// or after the first malformed option.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    options: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    /// Creates an iterator over the options of a header ([`crate::wire::ipv4::Header::options`]).
    pub const fn new(options: &'a [u8]) -> Walk<'a> {
        Walk { options, at: 0 }
    }

    /// Returns the offset of the next option, bytes. After an error, returns the offset of the malformed
    /// option.
    pub const fn at(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Item<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.options.get(self.at..)?;
            match *rest {
                [] | [END, ..] => return None,
                [NO_OPERATION, ..] => self.at += 1,
                [kind, length, ..] if (2..=rest.len()).contains(&usize::from(length)) => {
                    let item = Item { kind, at: self.at, data: &rest[2..usize::from(length)] };
                    self.at += usize::from(length);
                    return Some(Ok(item));
                }
                _ => {
                    // End the iteration, but keep `at`, which the caller reports in a parameter problem
                    // message.
                    self.options = &self.options[..self.at];
                    return Some(Err(Malformed::OptionLength));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn options_are_iterated_and_an_invalid_length_ends_the_iteration() {
        type Row<'a> = (&'a [u8], &'a [(u8, usize, usize)], Option<usize>);
        let rows: &[Row<'_>] = &[
            (&[], &[], None),
            (&[1, 1, 1, 0], &[], None),
            (&[148, 4, 0, 0], &[(148, 0, 2)], None),
            (&[1, 7, 7, 4, 1, 2, 3, 4, 148, 4, 0, 0], &[(7, 1, 5), (148, 8, 2)], None),
            (&[0, 148, 4, 0], &[], None),
            (&[7], &[], Some(0)),
            (&[7, 0, 0, 0], &[], Some(0)),
            (&[7, 1, 0, 0], &[], Some(0)),
            (&[1, 7, 255, 0], &[], Some(1)),
            (&[148, 4, 0, 0, 131, 5, 4, 0], &[(148, 0, 2)], Some(4)),
        ];
        for (bytes, expected, wrong) in rows {
            let mut walk = Walk::new(bytes);
            let (mut items, mut broken) = (Vec::new(), None);
            while let Some(item) = walk.next() {
                match item {
                    Ok(item) => items.push((item.kind, item.at, item.data.len())),
                    Err(rule) => {
                        assert_eq!(rule, Malformed::OptionLength);
                        broken = Some(walk.at());
                    }
                }
            }
            assert_eq!((&items[..], broken), (*expected, *wrong), "{bytes:?}");
        }
    }
}
