//! Lists of numbers: `100,500..6000/500,8192..65536*2`.

use std::str::FromStr;

/// Maximum length of a list.
const NUMBERS_MAX: usize = 1000;

/// A list of numbers from the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Numbers(pub(super) Vec<u32>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Numbers, String> {
        let mut numbers = Vec::new();
        for piece in text.split(',') {
            add(piece.trim(), &mut numbers).ok_or(format!(
                "'{piece}' is not a number or a range: write 100, 500..6000/500 or 1024..65536*2"
            ))?;
            if numbers.len() > NUMBERS_MAX {
                return Err(format!("more than {NUMBERS_MAX} numbers"));
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Numbers(numbers))
    }
}

fn add(piece: &str, numbers: &mut Vec<u32>) -> Option<()> {
    let Some((first, rest)) = piece.split_once("..") else {
        numbers.push(piece.parse().ok()?);
        return Some(());
    };
    let mut now: u32 = first.parse().ok()?;
    let (last, next): (u32, Box<dyn Fn(u32) -> Option<u32>>) =
        if let Some((last, step)) = rest.split_once('/') {
            let step: u32 = step.parse().ok().filter(|step| *step > 0)?;
            (last.parse().ok()?, Box::new(move |now| now.checked_add(step)))
        } else {
            let (last, factor) = rest.split_once('*')?;
            let factor: u32 = factor.parse().ok().filter(|factor| *factor > 1)?;
            (last.parse().ok()?, Box::new(move |now| now.checked_mul(factor).filter(|next| *next > now)))
        };
    while now <= last && numbers.len() <= NUMBERS_MAX {
        numbers.push(now);
        let Some(following) = next(now) else { break };
        now = following;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_parsed() {
        for (text, expected) in [
            ("100", &[100][..]),
            ("100,500..2000/500", &[100, 500, 1000, 1500, 2000]),
            ("1024..9000*2", &[1024, 2048, 4096, 8192]),
            ("3, 2,2", &[2, 3]),
            ("4000000000..4294967295/1000000000", &[4_000_000_000]),
        ] {
            assert_eq!(text.parse(), Ok(Numbers(expected.into())), "{text}");
        }
        for text in ["", "x", "1..2", "1..5/0", "1..5*1", "-1", "0..4000000000/1", "5000000000"] {
            assert!(text.parse::<Numbers>().is_err(), "{text}");
        }
    }
}
