//! A model of one flow on more cores than this machine has: what a source that many workers serve would carry on 1
//! to 64 of them, from what each stage of the data path costs on one.
//!
//! [`costs`] reads what the example `stage_costs` has measured, [`pool`] plays the workers event by event, and
//! [`report`] asks it the questions and writes the answers, as a table and as a picture. Nothing here looks at a
//! clock or at the machine: the same costs give the same answers everywhere.

pub mod costs;
pub mod pool;
pub mod report;
