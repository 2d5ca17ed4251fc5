//! `barewave lsp`, asked by a client; and the grammar that editors get with it.

use lsp_server::{Message, Notification, Request, RequestId, Response};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const URI: &str = "file:///kernel.s";

struct Client {
    server: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: i32,
}

impl Client {
    /// A server that has been told these options.
    fn start(args: &[&str], options: Value) -> Client {
        let mut command = Command::new(env!("CARGO_BIN_EXE_barewave"));
        let mut server = command.arg("lsp").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (server.stdin.take().unwrap(), BufReader::new(server.stdout.take().unwrap()));
        let mut client = Client { server, to, from, next: 0 };
        let said = client.ask("initialize", json!({ "capabilities": {}, "initializationOptions": options }));
        assert_eq!(said["capabilities"]["positionEncoding"], "utf-16");
        client.tell("initialized", json!({}));
        client
    }

    fn tell(&mut self, method: &str, params: Value) {
        Message::from(Notification::new(method.into(), params)).write(&mut self.to).unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> Response {
        self.next += 1;
        let id = RequestId::from(self.next);
        Message::from(Request::new(id.clone(), method.into(), params)).write(&mut self.to).unwrap();
        match Message::read(&mut self.from).unwrap().unwrap() {
            Message::Response(r) if r.id == id => r,
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        serde_json::to_value(self.request(method, params)).unwrap()["result"].clone()
    }

    /// What the server says about a place.
    fn at(&mut self, what: &str, line: usize, character: usize) -> Value {
        let place = json!({ "textDocument": { "uri": URI }, "position": { "line": line, "character": character } });
        self.ask(&format!("textDocument/{what}"), place)
    }

    /// Opens a source, or replaces it; gives the diagnostics.
    fn open(&mut self, text: &str) -> Vec<Value> {
        self.tell("textDocument/didOpen", json!({ "textDocument": { "uri": URI, "text": text, "version": 1 } }));
        self.diagnostics()
    }

    fn diagnostics(&mut self) -> Vec<Value> {
        match Message::read(&mut self.from).unwrap().unwrap() {
            Message::Notification(n) if n.method == "textDocument/publishDiagnostics" => {
                assert_eq!(n.params["uri"], URI);
                n.params["diagnostics"].as_array().unwrap().clone()
            }
            other => panic!("{other:?}"),
        }
    }

    fn stop(mut self) {
        self.ask("shutdown", Value::Null);
        self.tell("exit", Value::Null);
        assert!(self.server.wait().unwrap().success());
    }
}

const SOURCE: &str = "\t.amdgcn_target \"amdgcn-amd-amdhsa--gfx942\"\nstart:\n\tv_add_f32 v1, v2, v3\n\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]\n\ts_branch start\n";

#[test]
fn diagnostics_are_what_asm_says() {
    let mut client = Client::start(&[], Value::Null);
    assert_eq!(client.open(SOURCE), Vec::<Value>::new());
    let wrong = SOURCE.replace("v1, v2", "v1, /* é𝄞 */ v999") + "start:\n\ts_branch nowhere\n";
    let found = client.open(&wrong);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kernel.s");
    std::fs::write(&file, &wrong).unwrap();
    let asm = Command::new(env!("CARGO_BIN_EXE_barewave"))
        .args(["asm", file.to_str().unwrap(), "--target", "gfx942", "-o", "/dev/null"])
        .output()
        .unwrap();
    let asm = String::from_utf8(asm.stderr).unwrap();
    assert_eq!(found.len(), asm.matches("error: ").count(), "{asm}");
    for d in &found {
        assert!(asm.contains(&format!("error: {}\n", d["message"].as_str().unwrap())), "{d} in {asm}");
        assert_eq!((&d["severity"], &d["source"]), (&json!(1), &json!("barewave")));
    }
    // Columns are counted in UTF-16: the comment has two such letters fewer than bytes, and more.
    let line = wrong.lines().nth(2).unwrap();
    let want = line[..line.find("v999").unwrap()].encode_utf16().count();
    assert_eq!(found[0]["range"]["start"], json!({ "line": 2, "character": want }));
    assert_eq!(found[0]["range"]["end"], json!({ "line": 2, "character": want + 4 }));
    let related = &found[1]["relatedInformation"][0];
    assert_eq!(
        (&related["message"], &related["location"]["range"]["start"]["line"]),
        (&json!("it is defined here"), &json!(1))
    );
    client.tell(
        "textDocument/didChange",
        json!({ "textDocument": { "uri": URI, "version": 2 }, "contentChanges": [{ "text": SOURCE }] }),
    );
    assert_eq!(client.diagnostics(), Vec::<Value>::new());
    client.stop();
}

#[test]
fn hover_completion_and_labels() {
    let mut client = Client::start(&[], Value::Null);
    client.open(&(SOURCE.to_string() + "\tv_mf\n\ts_branch st\n"));
    let hover = client.at("hover", 3, 5);
    let page = hover["contents"]["value"].as_str().unwrap().to_string();
    let show = Command::new(env!("CARGO_BIN_EXE_barewave"))
        .args(["isa", "show", "v_mfma_f32_32x32x8_f16", "--target", "gfx942"])
        .output()
        .unwrap();
    assert_eq!(page, format!("```text\n{}```", String::from_utf8(show.stdout).unwrap()));
    assert!(page.contains("lane layout"), "{page}");
    assert!(client.at("hover", 1, 2)["contents"]["value"].as_str().unwrap().contains("start:"));
    assert_eq!(client.at("hover", 2, 0), Value::Null);
    let labels = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|i| i["label"].as_str().unwrap().to_string()).collect()
    };
    let mfma = labels(&client.at("completion", 5, 5));
    assert!(mfma.contains(&"v_mfma_f32_32x32x8_f16".into()) && mfma.iter().all(|l| l.starts_with("v_mf")), "{mfma:?}");
    assert_eq!(labels(&client.at("completion", 6, 12)), ["start"]);
    assert_eq!(
        client.at("definition", 4, 12),
        json!({ "uri": URI, "range": { "start": { "line": 1, "character": 0 }, "end": { "line": 1, "character": 5 } } })
    );
    // The target decides: gfx1100 has no mfma, but wmma.
    client.open(&SOURCE.replace("gfx942", "gfx1100").replace("\tv_mfma", "\tv_wm\n\tv_mfma"));
    assert!(labels(&client.at("completion", 3, 5)).iter().any(|l| l.starts_with("v_wmma")));
    let directives = Client::start(&["--target", "gfx90a"], Value::Null);
    let mut client = {
        client.stop();
        directives
    };
    client.open("\t.amdhsa_acc\n\t.glo\n");
    assert_eq!(labels(&client.at("completion", 0, 12)), [".amdhsa_accum_offset"]);
    assert_eq!(labels(&client.at("completion", 1, 5)), [".global", ".globl"]);
    client.stop();
}

#[test]
fn the_target_comes_from_source_setting_or_command_line() {
    let source = "\tv_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]\n";
    let mut client = Client::start(&[], Value::Null);
    let none = client.open(source);
    assert!(none[0]["message"].as_str().unwrap().contains(".amdgcn_target") && none[0]["severity"] == 2, "{none:?}");
    client.tell("workspace/didChangeConfiguration", json!({ "settings": { "barewave": { "target": "rx7900xtx" } } }));
    assert_eq!(client.diagnostics(), Vec::<Value>::new());
    client.tell("workspace/didChangeConfiguration", json!({ "settings": { "barewave": { "target": "gfx9999" } } }));
    match Message::read(&mut client.from).unwrap().unwrap() {
        Message::Notification(n) => {
            assert!(n.method == "window/showMessage" && n.params["message"].as_str().unwrap().contains("gfx9999"))
        }
        other => panic!("{other:?}"),
    }
    client.diagnostics();
    client.stop();
    for (args, options) in [(&["--target", "gfx1100"][..], Value::Null), (&[][..], json!({ "target": "gfx1100" }))] {
        let mut client = Client::start(args, options);
        assert_eq!(client.open(source), Vec::<Value>::new());
        client.stop();
    }
}

/// A shell instead of an editor.
#[test]
fn nobody_is_there() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_barewave"));
    let out = command.arg("lsp").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("the input ended before a client") && said.contains("README"), "{said}");
}

/// What no client should send.
#[test]
fn nonsense_does_not_end_the_server() {
    let mut client = Client::start(&["--target", "gfx942"], json!([1, 2]));
    assert!(client.request("textDocument/rename", json!({})).response_result.is_err_and(|e| e.code == -32601));
    for what in ["hover", "completion", "definition"] {
        assert_eq!(client.ask(&format!("textDocument/{what}"), json!({ "position": 3 })), Value::Null);
        assert_eq!(client.at(what, 1 << 40, 1 << 40), Value::Null);
    }
    client.open("é𝄞");
    for character in 0..5 {
        for what in ["hover", "completion", "definition"] {
            client.at(what, 0, character);
        }
    }
    client.open("");
    client.open("\u{0}\u{1b}[31m\n.macro m\nm\nm\n.endm\nm\n.rept 99999999\ns_nop 0\n.endr");
    client.tell("textDocument/didChange", json!({ "textDocument": 7, "contentChanges": {} }));
    client.tell("textDocument/didClose", json!({ "textDocument": { "uri": URI } }));
    assert_eq!(client.diagnostics(), Vec::<Value>::new());
    client.stop();
}

#[test]
fn damaged_messages_end_the_server_with_a_reason() {
    let cases: [(&[u8], &str); 5] = [
        (b"Content-Length: 99999999999\r\n\r\n{}", "claims 99999999999 bytes"),
        (b"Content-Length: 5\r\n\r\nabcde", "expected value"),
        (b"Content-Type: x\r\n\r\n{}", "no Content-Length"),
        (b"Content-Length: 40\r\n\r\n{}", "fill whole buffer"),
        (&[b'x'; 1 << 14], "no end"),
    ];
    for (sent, why) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_barewave"));
        let mut server =
            command.arg("lsp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It may stop reading before the end.
        let _ = server.stdin.take().unwrap().write_all(sent);
        let out = server.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{text}");
        assert!(text.contains("the client's message cannot be read") && text.contains(why), "{why}: {text}");
    }
}

#[test]
fn the_grammar_is_made_of_the_tables() {
    let made = Command::new(env!("CARGO_BIN_EXE_barewave")).args(["isa", "grammar"]).output().unwrap().stdout;
    let path = std::path::Path::new(ROOT).join("editors/vscode/syntaxes/amdgpu.tmLanguage.json");
    if std::env::var_os("BAREWAVE_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == made, "BAREWAVE_BLESS=1 writes editors/vscode/syntaxes anew");
    let package: Value =
        serde_json::from_slice(&std::fs::read(path.with_file_name("../package.json")).unwrap()).unwrap();
    let grammar: Value = serde_json::from_slice(&made).unwrap();
    assert_eq!(package["contributes"]["grammars"][0]["scopeName"], grammar["scopeName"]);
}
