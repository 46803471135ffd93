//! Replays the corpus of the fuzz target (`fuzz/corpus/batches`), so that earlier findings are checked on every run and
//! on every CPU.

use std::fs;
use std::path::Path;

#[path = "../fuzz/one_batch.rs"]
mod one_batch;

#[test]
fn every_input_of_the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/batches");
    let mut count = 0;
    for entry in fs::read_dir(&corpus).expect("the corpus is part of the repository") {
        let path = entry.expect("the folder can be read").path();
        one_batch::check(&fs::read(&path).expect("the file can be read"));
        count += 1;
    }
    assert!(count > 20, "{count} inputs in {}", corpus.display());
}
