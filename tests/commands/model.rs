//! ONNX files written by hand: the little of protobuf that it takes.

/// A message under construction.
#[derive(Clone, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
    }
    pub fn int(mut self, tag: u64, v: i64) -> Message {
        self.varint(tag << 3);
        self.varint(v as u64);
        self
    }
    pub fn bytes(mut self, tag: u64, v: &[u8]) -> Message {
        self.varint(tag << 3 | 2);
        self.varint(v.len() as u64);
        self.0.extend_from_slice(v);
        self
    }
    pub fn text(self, tag: u64, v: &str) -> Message {
        self.bytes(tag, v.as_bytes())
    }
    pub fn message(self, tag: u64, v: Message) -> Message {
        self.bytes(tag, &v.0)
    }
}

/// A float input or output: numbers are extents, other words symbols, `?` nothing.
pub fn value(name: &str, dims: &[&str]) -> Message {
    typed(name, 1, dims)
}

/// The same of any element type.
pub fn typed(name: &str, element: i64, dims: &[&str]) -> Message {
    let shape = dims.iter().fold(Message::default(), |m, d| {
        m.message(
            1,
            match d.parse() {
                Ok(n) => Message::default().int(1, n),
                Err(_) if *d == "?" => Message::default(),
                Err(_) => Message::default().text(2, d),
            },
        )
    });
    let tensor = Message::default().int(1, element).message(2, shape);
    Message::default().text(1, name).message(2, Message::default().message(1, tensor))
}

/// A node; attributes are messages of field 5.
pub fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Message]) -> Message {
    let m = inputs.iter().fold(Message::default(), |m, i| m.text(1, i));
    let m = outputs.iter().fold(m, |m, o| m.text(2, o)).text(4, op);
    attributes.iter().fold(m, |m, a| m.message(5, a.clone()))
}

/// A float initializer.
pub fn weights(name: &str, dims: &[i64], values: &[f32]) -> Message {
    let m = dims.iter().fold(Message::default(), |m, d| m.int(1, *d)).int(2, 1).text(8, name);
    m.bytes(9, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())
}

/// An integer initializer.
pub fn integers(name: &str, dims: &[i64], values: &[i64]) -> Message {
    let m = dims.iter().fold(Message::default(), |m, d| m.int(1, *d)).int(2, 7).text(8, name);
    m.bytes(9, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())
}

/// A list of integers as an attribute.
pub fn ints(name: &str, values: &[i64]) -> Message {
    values.iter().fold(Message::default().text(1, name).int(20, 7), |m, v| m.int(8, *v))
}

/// An integer as an attribute.
pub fn int(name: &str, v: i64) -> Message {
    Message::default().text(1, name).int(3, v).int(20, 2)
}

/// A whole file.
pub fn file(nodes: &[Message], inputs: &[Message], outputs: &[Message], initializers: &[Message]) -> Vec<u8> {
    let g = nodes.iter().fold(Message::default(), |g, n| g.message(1, n.clone())).text(2, "g");
    let g = initializers.iter().fold(g, |g, i| g.message(5, i.clone()));
    let g = inputs.iter().fold(g, |g, i| g.message(11, i.clone()));
    let g = outputs.iter().fold(g, |g, o| g.message(12, o.clone()));
    Message::default().int(1, 8).message(8, Message::default().text(1, "").int(2, 20)).message(7, g).0
}
