//! Segmentation and receive offload: cuts large TCP segments into packets, merges packets of one stream.

mod cut;
mod merge;

pub use cut::cut;
pub use merge::Merge;
