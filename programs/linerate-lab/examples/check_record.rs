//! Checks a record of the lab against its schema and prints the median of one of its figures, for the scenarios in
//! `tests/lab`: `check_record RECORD SCENARIO SUBJECT MEASURE`.

use std::error::Error;

use linerate_lab::measure::Measure;
use linerate_lab::record::Record;
use linerate_lab::stats::Summary;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, scenario, subject, measure] = &arguments[..] else {
        return Err("usage: check_record RECORD SCENARIO SUBJECT MEASURE".into());
    };
    let text = std::fs::read_to_string(file)?;
    check_schema(&serde_json::from_str(&text)?)?;

    let record = Record::parse(&text)?;
    let measure: Measure = serde_json::from_value(measure.as_str().into())?;
    let row = record.row(scenario, subject).ok_or("the record has no such row")?;
    let summary = Summary::of(row.values(measure)).ok_or("the row has no such figure")?;
    println!("{}", summary.median);
    Ok(())
}

fn check_schema(record: &serde_json::Value) -> Result<(), Box<dyn Error>> {
    let schema = serde_json::from_str(include_str!("../../../docs/lab-record.schema.json"))?;
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("record.json", schema).map_err(|error| error.to_string())?;
    let index = compiler.compile("record.json", &mut schemas).map_err(|error| error.to_string())?;
    schemas.validate(record, index).map_err(|error| error.to_string().into())
}
