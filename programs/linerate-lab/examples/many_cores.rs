//! Prints what the model of many cores makes of measured costs, and draws it: `many_cores COSTS [PICTURE]`.
//!
//! `COSTS` is a file that the example `stage_costs` wrote; `PICTURE` is the SVG file to write.

use std::error::Error;

use linerate_lab::many_cores::costs::Costs;
use linerate_lab::many_cores::report::{picture, table};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (file, drawing) = match &arguments[..] {
        [file] => (file, None),
        [file, drawing] => (file, Some(drawing)),
        _ => return Err("usage: many_cores COSTS [PICTURE]".into()),
    };
    let costs = Costs::parse(&std::fs::read_to_string(file)?)?;
    print!("{}", table(&costs));
    if let Some(drawing) = drawing {
        std::fs::write(drawing, picture(&costs))?;
    }
    Ok(())
}
