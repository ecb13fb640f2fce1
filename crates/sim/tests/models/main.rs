//! Models of processors and waiting processes, compared with the real code.

mod processor;
mod waiting;
mod waiting_nic;
