//! The pages of `run --profile` and `compile --report`, as text and in a real browser where there is one.

use crate::model;
use crate::model::{node, value};
use pretty_assertions::assert_eq;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn barewave(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_barewave"))
        .args(args)
        .env("BAREWAVE_CACHE", "off")
        .current_dir(ROOT)
        .output()
        .unwrap()
}

fn works(args: &[&str]) {
    let out = barewave(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Both pages of the digits model.
fn pages(folder: &Path) -> [PathBuf; 2] {
    let [profile, report] = ["profile.html", "report.html"].map(|name| folder.join(name));
    let (p, r) = (profile.to_str().unwrap(), report.to_str().unwrap());
    let digits = "examples/digits/digits.onnx";
    let apart = ["--levels", "never"];
    works(
        &[&["run", digits, "--device", "emu:gfx1100", "--input", "examples/digits/7.png", "--profile", p], &apart[..]]
            .concat(),
    );
    let code = folder.join("digits.hsaco");
    works(
        &[&["compile", digits, "--target", "gfx1100", "-o", code.to_str().unwrap(), "--report", r], &apart[..]]
            .concat(),
    );
    [profile, report]
}

#[test]
fn traces_hold_the_passes_before_the_launches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let digits = "examples/digits/digits.onnx";
    works(&[
        "run",
        digits,
        "--device",
        "emu:gfx942",
        "--random-inputs",
        "--levels",
        "never",
        "--profile",
        path.to_str().unwrap(),
    ]);
    let trace: Value = serde_json::from_str(&text(&path)).unwrap();
    let events: Vec<&Value> = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").collect();
    let of = |name: &str| events.iter().filter(|e| e["name"] == name && e["cat"] == "compiler").collect::<Vec<_>>();
    for pass in ["import", "fuse", "lower", "kernels", "verify"] {
        assert_eq!(of(pass).len(), 1, "{pass}");
    }
    let passes = [
        "build",
        "select",
        "pipeline",
        "schedule",
        "regalloc",
        "check",
        "waits",
        "hazards",
        "hard_clauses",
        "delays",
        "emit",
    ];
    for pass in passes {
        assert_eq!(of(pass).len(), 6, "{pass}: one for each kernel");
    }
    let kernels: Vec<&str> = of("kernel").iter().map(|e| e["args"]["kernel"].as_str().unwrap()).collect();
    assert!(kernels.contains(&"softmax_5"), "{kernels:?}");
    let span = |e: &Value| (e["ts"].as_f64().unwrap(), e["ts"].as_f64().unwrap() + e["dur"].as_f64().unwrap());
    for select in of("select") {
        let holds =
            |k: &&&&Value| k["tid"] == select["tid"] && span(k).0 <= span(select).0 && span(k).1 >= span(select).1;
        assert_eq!(of("kernel").iter().filter(holds).count(), 1, "a pass lies in its kernel's span, on its thread");
    }
    let last = of("verify")[0];
    let launches = events.iter().filter(|e| e["pid"] == 1);
    assert!(launches.clone().count() == 12 && launches.clone().all(|l| span(l).0 > span(last).1 - 1e-3));
}

#[test]
fn pages_show_the_model_its_memory_and_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let [profile, report] = pages(folder.path()).map(|p| text(&p));
    let count = |page: &str, part: &str| page.matches(part).count();
    // An input, six launches, an output.
    assert_eq!(count(&profile, "<g class=\"node\">"), 8);
    assert_eq!(count(&profile, "class=\"edge\""), 7);
    assert!(profile.contains("id=\"memory\"") && profile.contains("in an arena of"));
    for pass in ["<td>regalloc<td>6<td>", "<td>fuse<td>1<td>"] {
        assert!(profile.contains(pass), "{pass}");
    }
    let annotated: Vec<&str> = profile.lines().filter(|l| l.contains(" clk ")).collect();
    assert!(annotated.len() > 500 && annotated.iter().any(|l| l.contains("s_waitcnt") && l.ends_with("conv2+relu2")));
    assert_eq!(count(&report, "class=\"wide live\""), 6);
    assert_eq!(count(&report, "class=\"gantt\"") + count(&report, "No loop."), 6);
    assert!(report.contains("VGPR: ") && report.contains("a round takes"));
    for page in [&profile, &report] {
        assert!(
            !page.contains("src=") && !page.contains("href=") && !page.contains("<script"),
            "nothing else is needed"
        );
    }
}

#[test]
fn models_in_stages_have_all_parts_on_their_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    // How many elements there are after NonZero only a run tells.
    let nodes = [
        node("Softmax", &["x"], &["r"], &[]),
        node("NonZero", &["r"], &["i"], &[]),
        node("Transpose", &["i"], &["t"], &[]),
        node("GatherND", &["r", "t"], &["g"], &[]),
        node("Exp", &["g"], &["y"], &[]),
    ];
    let m = model::file(&nodes, &[value("x", &["100", "64"])], &[value("y", &["n"])], &[]);
    std::fs::write(file("m.onnx"), m).unwrap();
    let run = ["run", &file("m.onnx"), "--device", "emu:gfx1100", "--random-inputs", "--repeat", "3"];
    works(&[&run[..], &["--profile", &file("p.html")]].concat());
    let page = text(Path::new(&file("p.html")));
    let count = |part: &str| page.matches(part).count();
    assert!(page.contains("Part 1 of 2, run 1x") && page.contains("Part 2 of 2"), "the last run's parts");
    assert_eq!(count("<svg class=\"graph\""), 2);
    let launches = count("<rect") - count("<g class=\"node\">");
    assert!(launches > 0 && page.contains("id=\"memory\"") && page.contains("id=\"roofline\""));
    assert_eq!(count(".amdgcn_target"), 2, "the code of both parts");
    assert!(page.lines().any(|l| l.contains(" clk ") && l.ends_with(" y")));
    works(&[&run[..], &["--timing", "--profile", &file("p.json")]].concat());
    let trace: Value = serde_json::from_str(&text(Path::new(&file("p.json")))).unwrap();
    let of = |cat: &str| trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["cat"] == cat).count();
    assert!(of("kernel") > 0 && of("kernel") == of("model"), "every launch by the cycle model, too");
}

#[test]
fn names_in_models_cannot_put_anything_into_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let evil = "<script>alert(1)</script>\"><b>";
    let add = node("Add", &[evil, evil], &["y"], &[]).text(3, evil);
    std::fs::write(file("m.onnx"), model::file(&[add], &[value(evil, &["4"])], &[value("y", &["4"])], &[])).unwrap();
    works(&["run", &file("m.onnx"), "--device", "emu:gfx942", "--random-inputs", "--profile", &file("p.html")]);
    works(&["compile", &file("m.onnx"), "--target", "gfx942", "-o", &file("m.hsaco"), "--report", &file("r.html")]);
    for page in ["p.html", "r.html"] {
        let page = text(Path::new(&file(page)));
        assert!(!page.contains("<script") && !page.contains("<b>") && page.contains("&lt;script&gt;"));
    }
}

#[test]
fn reports_are_refused_before_the_work() {
    let out = barewave(&["compile", "examples/digits/digits.onnx", "--target", "gfx942", "--report", "r.txt"]);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(2) && err.contains("a file ending in .html is needed"), "{err}");
    let out =
        barewave(&["compile", "examples/digits/digits.onnx", "--target", "gfx942", "--report", "/nowhere/r.html"]);
    assert!(out.status.code() == Some(1) && String::from_utf8_lossy(&out.stderr).contains("cannot write"));
}

/// Chromium, by one of its names.
fn chromium() -> Option<&'static str> {
    let works = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works)
}

#[test]
fn a_browser_shows_the_pages() {
    let Some(chromium) = chromium() else {
        eprintln!("no Chromium: skipped");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for (page, elements) in pages(folder.path()).iter().zip([
        &[
            ("g.node", 8),
            ("#kernels tr", 7),
            ("#roofline circle", 6),
            ("#memory rect", 6),
            ("#measured rect", 6),
            ("pre", 1),
        ][..],
        &[("#kernels tr", 7), ("svg.live", 6), ("section", 6), ("svg.live polyline", 12)][..],
    ]) {
        let asked: Vec<String> =
            elements.iter().map(|(s, _)| format!("document.querySelectorAll('{s}').length")).collect();
        // The page asked from inside: what the browser made of it, and whether the drawings have a size.
        let script = format!(
            "<script>onload=()=>{{const w=[...document.querySelectorAll('svg')].filter(s=>s.getBoundingClientRect().height<20).length;\
             document.title='found '+[{},w].join(' ')}}</script>",
            asked.join(",")
        );
        let probe = page.with_extension("probe.html");
        std::fs::write(&probe, text(page) + &script).unwrap();
        let run = |args: &[String]| {
            let profile = format!("--user-data-dir={}", folder.path().join("browser").display());
            let fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", &profile];
            let out = Command::new(chromium).args(fixed).args(args).output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8_lossy(&out.stdout).into_owned()
        };
        let dom = run(&["--dump-dom".into(), format!("file://{}", probe.display())]);
        let want: Vec<String> = elements.iter().map(|(_, n)| n.to_string()).collect();
        assert!(dom.contains(&format!("found {} 0", want.join(" "))), "{elements:?}: {}", title(&dom));
        let picture = page.with_extension("png");
        run(&[
            "--window-size=1200,2000".into(),
            format!("--screenshot={}", picture.display()),
            format!("file://{}", page.display()),
        ]);
        assert!(std::fs::metadata(&picture).unwrap().len() > 50_000, "the picture is not empty");
    }
}

fn title(dom: &str) -> &str {
    dom.split("<title>").nth(1).and_then(|t| t.split("</title>").next()).unwrap_or("no title")
}
