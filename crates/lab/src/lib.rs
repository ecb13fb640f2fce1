//! Measuring: accepted repeats, medians, ratios, records.
