//! Who may import whom: rooms of the house by the paths in their sources.
//!
//! Data flows one way, from a model to machine code to a device; a room imports only from rooms that it is listed with.
//! Paths in comments do not count, nor do modules of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A room: its name, where its sources are, and the rooms that it may import.
const ROOMS: &[(&str, &[&str], &[&str])] = &[
    ("isa", &["isa/src", "isa/build"], &[]),
    ("codeobj", &["src/codeobj"], &["isa"]),
    ("emu", &["src/emu"], &["isa", "codeobj"]),
    ("timing", &["src/timing"], &["isa", "codeobj", "emu"]),
    ("mir", &["src/mir"], &["isa"]),
    ("passes", &["src/passes"], &["mir", "isa"]),
    ("verify", &["src/verify"], &["codeobj", "isa"]),
    ("mapped", &["src/mapped.rs"], &[]),
    ("tensor", &["src/tensor"], &["mapped", "output"]),
    ("onnx", &["src/onnx"], &["tensor", "mapped"]),
    ("graph", &["src/graph"], &["onnx", "tensor"]),
    ("kernels", &["kernels"], &["mir", "graph", "tensor", "timing", "isa"]),
    ("runtime", &["src/runtime"], &["codeobj", "emu", "tensor", "verify", "isa"]),
    ("output", &["src/output.rs"], &[]),
    (
        "compile",
        &["src/compile"],
        &[
            "codeobj", "graph", "kernels", "mapped", "mir", "onnx", "output", "passes", "runtime", "tensor", "verify",
            "isa",
        ],
    ),
    // sessions run what the compiler made: the facade's side of the runtime
    (
        "session",
        &["src/runtime/session.rs", "src/runtime/any_shape.rs", "src/runtime/ahead.rs", "src/runtime/stages.rs"],
        &["compile", "graph", "onnx", "runtime", "codeobj", "emu", "tensor", "verify", "isa"],
    ),
];

fn sources(path: &Path, out: &mut Vec<PathBuf>) {
    if path.is_file() {
        out.extend(path.extension().is_some_and(|e| e == "rs").then(|| path.to_owned()));
        return;
    }
    let mut list: Vec<PathBuf> = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
    list.sort();
    list.iter().for_each(|p| sources(p, out));
}

/// The code of a source without comments and without the module of its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
    text.lines().filter(|l| !l.trim_start().starts_with("//")).map(|l| l.split(" // ").next().unwrap_or("")).fold(
        String::new(),
        |mut out, l| {
            out += l;
            out.push('\n');
            out
        },
    )
}

/// First names behind a prefix: `graph` and `onnx` of `crate::graph::x` and `crate::{onnx, graph}`.
fn names(code: &str, prefix: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        // `barewave::` is the end of `my_barewave::` too
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let word = |s: &str| s.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        match rest.strip_prefix('{') {
            None => {
                out.insert(word(rest));
            }
            Some(list) => {
                let (mut depth, mut start) = (1, 0);
                for (i, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        _ => {}
                    }
                    if depth == 1 && c == ',' || depth == 0 {
                        out.insert(word(&list[start..i]));
                        start = i + 1;
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    out.retain(|n| !n.is_empty());
    out
}

/// Rooms that a source imports.
fn imports(code: &str, known: &BTreeMap<&str, &[&str]>) -> BTreeSet<String> {
    let mut out: BTreeSet<String> = BTreeSet::new();
    for prefix in ["crate::", "barewave::", "barewave_emu::"] {
        out.extend(names(code, prefix).into_iter().filter(|n| known.contains_key(n.as_str())));
    }
    let other = names(code, "barewave_emu::").iter().any(|n| !known.contains_key(n.as_str()));
    for (room, used) in [("isa", code.contains("barewave_isa")), ("emu", other)] {
        out.extend(used.then(|| room.to_owned()));
    }
    out
}

#[test]
fn rooms_import_only_what_they_may() {
    let known: BTreeMap<&str, &[&str]> = ROOMS.iter().map(|r| (r.0, r.2)).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (room, places, may) in ROOMS {
        let mut files = Vec::new();
        places.iter().for_each(|p| sources(&root.join(p), &mut files));
        // a file with a line of its own
        let own = |f: &PathBuf| ROOMS.iter().any(|r| r.0 != *room && r.1.iter().any(|p| root.join(p) == *f));
        files.retain(|f| !own(f));
        assert!(!files.is_empty(), "{room} has no sources: is it where this test looks?");
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            seen += 1;
            for import in imports(&code(&text), &known) {
                if import != *room && !may.contains(&import.as_str()) {
                    let path = file.strip_prefix(root).unwrap_or(&file).display().to_string();
                    wrong.push(format!("{path} is of {room}, which may not import {import}"));
                }
            }
        }
    }
    assert!(seen > 150, "only {seen} sources");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rooms_form_no_circle() {
    let may: BTreeMap<&str, &[&str]> = ROOMS.iter().map(|r| (r.0, r.2)).collect();
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    while placed.len() < may.len() {
        let ready: Vec<&str> = may
            .iter()
            .filter(|(r, m)| !placed.contains(*r) && m.iter().all(|x| placed.contains(x)))
            .map(|r| *r.0)
            .collect();
        assert!(
            !ready.is_empty(),
            "a circle among {:?}",
            may.keys().filter(|r| !placed.contains(*r)).collect::<Vec<_>>()
        );
        placed.extend(ready);
    }
}

#[test]
fn every_room_of_the_library_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = std::fs::read_to_string(root.join("src/lib.rs")).unwrap();
    for line in code(&library).lines() {
        if let Some(name) = line.trim().strip_prefix("pub mod ").or(line.trim().strip_prefix("mod ")) {
            let name = name.trim_end_matches(';');
            assert!(ROOMS.iter().any(|r| r.0 == name), "`{name}` of src/lib.rs has no line in the table of rooms");
        }
    }
}

#[test]
fn imports_are_read_as_the_compiler_reads_them() {
    let known: BTreeMap<&str, &[&str]> = ROOMS.iter().map(|r| (r.0, r.2)).collect();
    let of = |text: &str| imports(&code(text), &known).into_iter().collect::<Vec<_>>();
    assert_eq!(of("use crate::graph::fused::Step;"), ["graph"]);
    assert_eq!(of("use crate::{graph::{self, view}, mir, util};"), ["graph", "mir"]);
    assert_eq!(of("let x = crate::passes::compile(f); // crate::emu"), ["passes"]);
    assert_eq!(of("/// See [`crate::graph`].\nfn f() {}\n#[cfg(test)]\nmod tests { use crate::emu::X; }"), [""; 0]);
    assert_eq!(
        of("use barewave_isa::Target; use barewave_emu::EmuDevice; use barewave_emu::codeobj::Abi;"),
        ["codeobj", "emu", "isa"]
    );
}

/// Folders of `isa/src` in the order in which they build on each other: each imports only from those before it.
const ISA_FOLDERS: &[&str] = &["model", "encode", "text", "asm", "query"];

/// Names that `lib.rs` exports, and the folder that each comes from.
fn exported(library: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for statement in library.split(';') {
        let Some((_, path)) = statement.split_once("pub use ") else { continue };
        let Some((folder, rest)) = path.split_once("::") else { continue };
        for name in rest.split(['{', '}', ',', ':']).map(str::trim).filter(|n| !n.is_empty() && *n != "*") {
            out.insert(name.to_string(), folder.trim().to_string());
        }
    }
    out
}

/// Folders that a source of the tables' crate imports from, by path or by the name that the crate exports.
fn folders(code: &str, exported: &BTreeMap<String, String>) -> BTreeSet<String> {
    let of = |n: String| match ISA_FOLDERS.contains(&n.as_str()) {
        true => Some(n),
        false => exported.get(&n).cloned(),
    };
    names(code, "crate::").into_iter().filter_map(of).collect()
}

#[test]
fn folders_of_the_tables_form_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("isa/src");
    let exported = exported(&code(&std::fs::read_to_string(root.join("lib.rs")).unwrap()));
    assert_eq!(exported.get("encode_raw").map(String::as_str), Some("encode"));
    let (mut wrong, mut seen, mut crossings) = (Vec::new(), 0, 0);
    for (at, folder) in ISA_FOLDERS.iter().enumerate() {
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files);
        assert!(!files.is_empty(), "{folder} has no sources");
        for file in files {
            seen += 1;
            for import in folders(&code(&std::fs::read_to_string(&file).unwrap()), &exported) {
                let before = ISA_FOLDERS[..=at].contains(&import.as_str());
                crossings += usize::from(import != *folder);
                if !before {
                    wrong.push(format!("{} of {folder} imports {import}", file.display()));
                }
            }
        }
    }
    assert!(seen > 30 && crossings > 20, "{seen} sources, {crossings} imports of other folders");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let listed = |e: &std::fs::DirEntry| {
        let name = e.file_name().into_string().unwrap();
        name == "lib.rs" || ISA_FOLDERS.contains(&name.as_str())
    };
    assert!(std::fs::read_dir(&root).unwrap().all(|e| listed(&e.unwrap())), "a source outside of the folders");
}

/// Modules of a crate that a module imports, by path: `exec/vmem` of `super::vmem::run` in `exec/ds`.
fn modules(code: &str, me: &str, all: &BTreeSet<String>) -> BTreeSet<String> {
    let longest = |parts: &[&str]| (1..=parts.len()).rev().map(|n| parts[..n].join("/")).find(|p| all.contains(p));
    let mut out = BTreeSet::new();
    let own: Vec<&str> = me.split('/').collect();
    for prefix in ["crate::", "super::"] {
        for (at, _) in code.match_indices(prefix) {
            let before = &code[..at];
            if before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let (mut rest, mut base) =
                (&code[at + prefix.len()..], if prefix == "super::" { own.len() - 1 } else { 0 });
            while let Some(r) = rest.strip_prefix("super::") {
                (rest, base) = (r, base.saturating_sub(1));
            }
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
            let path: Vec<&str> =
                own[..base].iter().copied().chain(rest[..end].split("::")).filter(|p| !p.is_empty()).collect();
            let lists = rest[end..].strip_prefix('{').and_then(|r| r.split('}').next()).unwrap_or("");
            for item in lists.split(',').map(str::trim).chain(lists.is_empty().then_some("")) {
                let item: Vec<&str> = path.iter().copied().chain(item.split("::")).filter(|p| !p.is_empty()).collect();
                out.extend(longest(&item).filter(|m| m != me));
            }
        }
    }
    out
}

/// The files of the emulator build on each other without circles: state, micro-operations, handlers, decoding, launching.
#[test]
fn files_of_the_emulator_form_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/emu");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let name = |file: &Path| {
        let path = file.strip_prefix(&root).unwrap().with_extension("").display().to_string();
        path.strip_suffix("/mod").map(str::to_owned).unwrap_or(path)
    };
    let all: BTreeSet<String> = files.iter().map(|f| name(f)).collect();
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files.iter().filter(|f| name(f) != "lib") {
        let text = code(&std::fs::read_to_string(file).unwrap());
        imports.insert(name(file), modules(&text, &name(file), &all));
    }
    // the test sees what it is about
    let has = |a: &str, b: &str| imports[a].contains(b);
    assert!(has("exec/ds", "exec/rows") && has("uop", "wave") && has("launch", "strict") && has("vopd", "builder"));
    let mut placed: BTreeSet<&str> = BTreeSet::from(["lib", "hip", "hip/types"]);
    loop {
        let ready: Vec<&str> = imports
            .iter()
            .filter(|(m, needs)| !placed.contains(m.as_str()) && needs.iter().all(|n| placed.contains(n.as_str())))
            .map(|(m, _)| m.as_str())
            .collect();
        if ready.is_empty() {
            break;
        }
        placed.extend(ready);
    }
    let left: Vec<_> = imports.iter().filter(|(m, _)| !placed.contains(m.as_str())).collect();
    assert!(left.is_empty(), "a circle among {left:#?}");
}
