//! Dates of files and records, held in seconds, and their text form in attributes (GeneralizedTime, ISO
//! 8824).
//!
//! Purpose          converts the dates of files for the network; no decision depends on them.
//! Not implemented  fractions of a second. A receiver that cannot parse a date keeps it as text.

use alloc::format;
use alloc::string::String;

/// Seconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Date(pub i64);

const DAY: i64 = 86_400;
/// The seconds at which the years 0 and 10000 begin: the limits, since a year has four digits.
const FIRST: i64 = -719_528 * DAY;
const LAST: i64 = 2_932_897 * DAY;

impl Date {
    /// Formats as `YYYYMMDDhhmmssZ`. A date outside the years 0 to 9999 becomes the nearest date within them.
    pub fn text(self) -> String {
        let seconds = self.0.clamp(FIRST, LAST - 1);
        let (days, of_day) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let (year, month, day) = calendar(days);
        format!("{year:04}{month:02}{day:02}{:02}{:02}{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
    }

    /// Parses the format of [`Date::text`]. Minutes, seconds, fractions and `Z` may be missing, and a UTC
    /// offset may replace the `Z`.
    pub fn read(text: &str) -> Option<Date> {
        let number = |from: usize, digits: usize| {
            let part = text.get(from..from + digits)?;
            part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<i64>().ok())?
        };
        let (year, month, day, hour) = (number(0, 4)?, number(4, 2)?, number(6, 2)?, number(8, 2)?);
        let minute = number(10, 2);
        let second = minute.and_then(|_| number(12, 2));
        let clock_digits = 10 + 2 * (usize::from(minute.is_some()) + usize::from(second.is_some()));
        let mut rest = text.get(clock_digits..)?;
        if let Some(fraction) = rest.strip_prefix(['.', ',']) {
            rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        let away = match rest.as_bytes() {
            [] | [b'Z'] => 0,
            [sign @ (b'+' | b'-'), digits @ ..] if matches!(digits.len(), 2 | 4) => {
                let digits = core::str::from_utf8(digits).ok()?;
                let (hours, minutes) = digits.split_at(2);
                let minutes = if minutes.is_empty() { "0" } else { minutes };
                let away = hours.parse::<u16>().ok()? * 3600 + minutes.parse::<u16>().ok()? * 60;
                if *sign == b'+' { i64::from(away) } else { -i64::from(away) }
            }
            _ => return None,
        };
        let (minute, second) = (minute.unwrap_or(0), second.unwrap_or(0));
        let days = days(year, month, day);
        // A leap second counts as the first second of the next minute.
        let right =
            (1..=12).contains(&month) && calendar(days) == (year, month, day) && hour < 24 && minute < 60;
        (right && second <= 60).then_some(Date(days * DAY + hour * 3600 + minute * 60 + second - away))
    }
}

/// Returns the number of days from 1970-01-01 to a calendar date. Years are counted from March, so that a
/// leap day is the last day of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468
}

/// Returns the year, month and day. This is the inverse of [`days`].
fn calendar(since_1970: i64) -> (i64, i64, i64) {
    let since_march = since_1970 + 719_468;
    let (age, of_age) = (since_march.div_euclid(146_097), since_march.rem_euclid(146_097));
    let year = (of_age - of_age / 1460 + of_age / 36_524 - of_age / 146_096) / 365;
    let of_year = of_age - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    if month < 10 { (age * 400 + year, month + 3, day) } else { (age * 400 + year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_match_their_texts() {
        let rows = [
            (0, "19700101000000Z"),
            (951_782_399, "20000228235959Z"),
            (951_782_400, "20000229000000Z"),
            (1_700_000_000, "20231114221320Z"),
            (4_107_542_400, "21000301000000Z"),
            (-1, "19691231235959Z"),
            (i64::MIN, "00000101000000Z"),
            (i64::MAX, "99991231235959Z"),
        ];
        for (seconds, text) in rows {
            assert_eq!(Date(seconds).text(), text);
        }
    }

    #[test]
    fn dates_of_other_implementations_are_parsed() {
        let rows = [
            ("20231114221320", Some(1_700_000_000)),
            ("20231114221320.5Z", Some(1_700_000_000)),
            ("20231114231320+0100", Some(1_700_000_000)),
            ("20231114171320-05", Some(1_700_000_000)),
            ("2023111422Z", Some(1_699_999_200)),
            ("202311142213", Some(1_699_999_980)),
            // ISODE 8 writes dates from the year 2000 onwards in this form.
            ("0126130112000Z", None),
            ("20231314221320Z", None),
            ("20230229000000Z", None),
            ("20231114221320+1", None),
            ("20231114221320+ab00", None),
            ("2023-11-14", None),
            ("", None),
            ("２０２３", None),
        ];
        for (text, seconds) in rows {
            assert_eq!(Date::read(text), seconds.map(Date), "{text}");
        }
    }

    proptest! {
        #[test]
        fn encoding_and_decoding_agree(seconds in FIRST..LAST) {
            prop_assert_eq!(Date::read(&Date(seconds).text()), Some(Date(seconds)));
        }

        #[test]
        fn any_text_is_accepted_or_rejected(text in ".{0,24}") {
            let _ = Date::read(&text);
        }
    }
}
