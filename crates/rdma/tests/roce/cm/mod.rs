//! Communication management: its messages, and the state machine.

mod messages;
