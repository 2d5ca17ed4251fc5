//! A compact set of LLVM's vectors that lives in the repository: one or two of every shape of instruction per target.

use crate::common;

#[test]
fn both_ways() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).expect("tests/golden").map(|f| f.expect("a file").path()).collect();
    files.sort();
    let mut failures = Vec::new();
    assert!(files.len() >= 15, "a file per target family");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        assert!(text.lines().count() > 100, "{} is nearly empty", file.display());
        for line in text.lines() {
            let v = common::vector(line);
            if let Err(why) = common::check_disassembly(&v).and_then(|()| common::check_assembly(&v)) {
                failures.push(format!("{line}\t{why}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n"));
}
