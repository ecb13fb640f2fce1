//! Communication management: its messages, and the state machine.

mod duplicates;
mod hostile;
mod impaired;
mod limits;
mod messages;
mod pair;
mod rxe;
mod states;
