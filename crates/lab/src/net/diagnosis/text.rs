//! The findings of a sweep as text.

use super::findings::Findings;
use super::repeat::ROUNDS;
use crate::table::{Table, counted, readable};
use std::fmt;

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.path_line())?;
        if let Some(environment) = &self.environment {
            writeln!(f, "measured from {}\n", environment.line())?;
        }
        for map in &self.maps {
            writeln!(f, "{map}")?;
        }
        for both in &self.directions {
            writeln!(f, "{both}")?;
        }
        if self.causes.is_empty() {
            writeln!(f, "{}", self.nothing_slow())?;
        }
        if let Some(rates) = self.rates() {
            writeln!(f, "Streams: {rates}.\n")?;
        }
        for words in self.at_once() {
            writeln!(f, "{}{}.\n", words[..1].to_uppercase(), &words[1..])?;
        }
        if let Some(again) = self.again() {
            writeln!(f, "{again}.\n")?;
        }
        if !self.causes.is_empty() {
            let mut table = Table::new("Why cells are slow")
                .text_column("")
                .text_column("cause")
                .number_column("cells")
                .text_column("worst");
            for count in &self.causes {
                let letter = count.cause.letter().to_string();
                table.row([letter, count.words.clone(), count.cells.to_string(), count.case.clone()]);
            }
            writeln!(f, "{table}")?;
            for count in &self.causes {
                writeln!(f, "{}: {}", count.cause.letter(), count.example)?;
            }
            if let Some(words) = self.no_fault() {
                writeln!(f, "{words}")?;
            }
            writeln!(f)?;
        }
        if !self.advice.is_empty() {
            writeln!(
                f,
                "What to change, tried on the worst case of each cause (PROVED: in {ROUNDS} rounds, slow without the \
                 change, and with it not slow and faster)"
            )?;
            for proof in &self.advice {
                let before = readable(proof.before);
                match proof.after {
                    Some(after) => writeln!(
                        f,
                        "- {}\n  {}: {before} -> {} {} ({})",
                        proof.advice,
                        if proof.removed {
                            "PROVED".to_owned()
                        } else {
                            format!("not proved, {}", proof.note)
                        },
                        readable(after),
                        proof.unit,
                        proof.case
                    )?,
                    None if proof.note.is_empty() => writeln!(f, "- {}", proof.advice)?,
                    None => writeln!(f, "- {}\n  not tried: {}", proof.advice, proof.note)?,
                }
            }
        }
        if self.disturbed > 0 {
            writeln!(
                f,
                "{} disturbed by other processes in every attempt (if both ends run on this host, use \
                 --foreign-cores 100)",
                counted(self.disturbed, "point")
            )?;
        }
        Ok(())
    }
}
