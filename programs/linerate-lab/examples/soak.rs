//! Judges the record of a soak, and draws it: `soak FOLDER [PICTURE]`. The status is 0 if nothing is wrong.
//!
//! `FOLDER` has the files that `tests/soak/run` wrote; `PICTURE` is the SVG file to write.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use linerate_lab::soak::picture::picture;
use linerate_lab::soak::record::Record;
use linerate_lab::soak::verdict::Verdict;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, drawing) = match &arguments[..] {
        [folder] => (folder, None),
        [folder, drawing] => (folder, Some(drawing)),
        _ => return Err("usage: soak FOLDER [PICTURE]".into()),
    };
    let record = Record::read(Path::new(folder))?;
    let verdict = Verdict::of(&record);
    print!("{verdict}");
    if let Some(drawing) = drawing {
        std::fs::write(drawing, picture(&record))?;
    }
    Ok(if verdict.failures().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
