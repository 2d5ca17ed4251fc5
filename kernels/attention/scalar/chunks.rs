//! What comes of K and V at once, and what it is multiplied by.
//!
//! A chunk of scores has eight dwords of four keys, one of values sixteen dwords of two keys: 32 scalar registers. There are two sets of
//! these in turn. Pieces of queries come from LDS for as many dwords of all keys of a tile, one set of registers ahead.
//!
//! Products stand so that neighbours are of different keys and different places in their lines: their results and vector factors then lie
//! in registers that dual issue takes together.

use super::super::super::Writer;
use super::super::super::error::Res;
use super::{Arg, Buffer, Builder, Float, Gen, Keys, Opnd, Part, Scalars, Target, Type, dot_instruction};
use crate::mir::MInst;
use barewave_isa::{ModName, Mods, Op, op};

/// Scalar registers of a chunk.
pub(super) const WORDS: u32 = 32;

/// Dwords of lines in a chunk of scores, and its keys; the same of values.
pub(super) const DEPTH: u32 = 8;
const OF_SCORES: u32 = 4;
const WIDTH: u32 = 16;
const OF_VALUES: u32 = 2;

/// Dwords that lines are multiples of.
const LEAST: u32 = super::WHOLE as u32 / 4;

/// Bytes of a line of the caches that is asked for ahead.
const LINE: u32 = 64;

/// The instruction that multiplies two pairs and adds both products, where the type has pairs.
pub(super) fn dot(target: Target, t: Type) -> Option<Op> {
    dot_instruction(target, [t; 2], Type::F32).filter(|_| t == Type::F16).map(|d| d.op)
}

/// Some dwords of some keys of a tile.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// Of K, not of V.
    of_k: bool,
    /// First key in the tile, and how many.
    key: u32,
    keys: u32,
    /// First dword of their lines, and how many.
    word: u32,
    words: u32,
}

impl Chunk {
    /// Those of a tile of so many keys, in order.
    pub fn all(plan: &Scalars, count: u32) -> Vec<Chunk> {
        let keys = |each: u32| (0..count).step_by(each as usize).map(move |key| (key, each.min(count - key)));
        let chunk =
            |of_k: bool, (key, keys): (u32, u32), (word, words): (u32, u32)| Chunk { of_k, key, keys, word, words };
        let (deep, wide) = (pieces(plan.deep(), DEPTH), pieces(plan.wide(), WIDTH));
        let of_scores = deep.iter().flat_map(|piece| keys(OF_SCORES).map(move |k| chunk(true, k, *piece)));
        let of_values = keys(OF_VALUES).flat_map(|k| wide.iter().map(move |piece| chunk(false, k, *piece)));
        of_scores.chain(of_values).collect()
    }

    pub fn is_of_scores(&self) -> bool {
        self.of_k
    }
}

/// Where a line of so many dwords is cut into pieces that a scalar load takes, of no more than `most`: first dwords, and how many.
fn pieces(all: u32, most: u32) -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    let mut word = 0;
    while word < all {
        let left = most.min(all - word);
        let words = [16, 8].into_iter().find(|n| *n <= left).unwrap_or(LEAST);
        out.push((word, words));
        word += words;
    }
    out
}

/// Where K and V are read, with the registers for it.
pub(super) struct Chunks<'a, 'g> {
    keys: &'a Keys<'g>,
    /// K and V.
    buffers: [Buffer; 2],
    /// Bytes from one line to the next.
    strides: [u32; 2],
    /// Bytes before the first line: of the workgroup's batch, and constant ones.
    outer: [(Option<Part>, u32); 2],
    /// First key of the tile, and where its lines begin; first key of the last tile.
    key: Part,
    bases: [Part; 2],
    last: Part,
    /// Registers of two chunks in turn.
    sets: [[Part; 2]; 2],
    /// Registers of what is read of the query at once, two in turn.
    pieces: [[Part; 2]; 2],
    /// Where the lane reads them.
    place: Part,
    /// Where lanes ask for lines of K and V ahead, and the registers for what nobody waits for.
    places: [Vec<(Part, Part)>; 2],
}

impl<'a, 'g> Chunks<'a, 'g> {
    pub fn new(keys: &'a Keys<'g>, w: &mut Writer, base: u32) -> Res<Self> {
        let plan = &keys.plan;
        let r = keys.cx.step.output.view.rank();
        let size = plan.t.bits() / 8;
        let stride = |i: usize, d: usize| keys.cx.step.inputs[i].view.strides[d] as u32 * size;
        let buffers = [w.buffer(keys.cx, Arg::Input(1))?, w.buffer(keys.cx, Arg::Input(2))?];
        let outer = [1, 2].map(|i| {
            let at = keys.outer(w, Arg::Input(i));
            (at.reg, at.imm)
        });
        let b = &mut w.b;
        let strides = [stride(1, r - 1), stride(2, r - 2)];
        let places = [(plan.deep(), strides[0]), (plan.wide(), strides[1])].map(|(words, stride)| {
            let lines = (words * 4).div_ceil(LINE);
            let some = (0..lines * plan.keys).step_by(plan.lanes as usize).map(|before| {
                let number = b.add(keys.lane, before);
                let (key, line) = b.divmod(number, lines);
                let at = b.mul(key, stride);
                let at = b.mad(line, LINE, at);
                (b.to_vector(at), b.v(1))
            });
            some.collect()
        });
        let place = b.mul(keys.lane, 16u32);
        let place = b.add(place, base);
        Ok(Chunks {
            keys,
            buffers,
            strides,
            outer,
            key: b.s(1),
            bases: [b.s(1), b.s(1)],
            last: b.s(1),
            sets: [0, 1].map(|_| [b.s(16), b.s(16)]),
            pieces: [0, 1].map(|_| [b.v(4), b.v(4)]),
            place: b.to_vector(place),
            places,
        })
    }

    /// First key of the tile.
    pub fn key(&self) -> Part {
        self.key
    }

    /// Goes to a tile of so many keys, of so many tiles, and asks for its first chunk and pieces.
    pub fn begin(&self, b: &mut Builder, first: Part, tiles: Option<Part>, count: u32) {
        b.copy_into(self.key, first);
        let last = match tiles {
            Some(tiles) => {
                let last = b.sub(tiles, 1u32);
                b.mul(last, self.keys.plan.keys)
            }
            None => first,
        };
        b.copy_into(self.last, last);
        self.go(b);
        let first = Chunk::all(&self.keys.plan, count)[0];
        self.load(b, &first, 0);
        self.read(b, first.word, first.words, 0);
    }

    /// Lines begin where the tile's first key says.
    fn go(&self, b: &mut Builder) {
        for i in 0..2 {
            let at = b.mul(self.key, self.strides[i]);
            let at = self.outer[i].0.map_or(at, |r| b.add(at, r));
            b.copy_into(self.bases[i], at);
        }
    }

    /// First key of the wave's next tile; of the last one where there is none.
    fn next(&self, b: &mut Builder) -> Part {
        let key = b.add(self.key, self.keys.plan.round());
        b.generic(Gen::Min.of(Type::U32), &[key.into(), self.last.into()])
    }

    /// Asks for a dword of each line of the wave's next tile, for which nobody waits.
    pub fn touch(&self, b: &mut Builder) {
        let next = self.next(b);
        for (i, places) in self.places.iter().enumerate() {
            let next = b.mul(next, self.strides[i]);
            let next = self.outer[i].0.map_or(next, |r| b.add(next, r));
            let next = b.add(next, self.outer[i].1);
            places.iter().for_each(|(at, to)| b.load_into(*to, self.buffers[i], *at, next, 0));
        }
    }

    /// What was asked for that way goes where nobody reads.
    pub fn drop_touched(&self, b: &mut Builder, spare: u32) {
        let item = b.workitem_id();
        let nowhere = b.mul(item, 4u32);
        let nowhere = b.add(nowhere, spare);
        let nowhere = b.to_vector(nowhere);
        self.places.iter().flatten().for_each(|(_, to)| b.lds_write(nowhere, *to, 0));
    }

    /// Loads a chunk.
    fn load(&self, b: &mut Builder, c: &Chunk, set: usize) {
        let i = usize::from(!c.of_k);
        for n in 0..c.keys {
            let to = self.registers(c, n, set);
            let imm = self.outer[i].1 + (c.key + n) * self.strides[i] + c.word * 4;
            b.scalar_buffer_load_into(to, self.buffers[i], self.bases[i], imm);
        }
    }

    /// The registers of key `n` of a chunk.
    fn registers(&self, c: &Chunk, n: u32, set: usize) -> Part {
        let each = 16 / if c.of_k { DEPTH } else { WIDTH };
        self.sets[set][(n / each) as usize].slice((n % each * DEPTH) as u8, c.words as u8)
    }

    /// Reads so many dwords of the lane's query.
    fn read(&self, b: &mut Builder, word: u32, words: u32, set: usize) {
        for piece in 0..words / 4 {
            b.lds_read_into(self.pieces[set][piece as usize], self.place, (word / 4 + piece) * self.keys.plan.pitch());
        }
    }

    /// Dword `word` of what was read of it.
    fn query(&self, set: usize, word: u32) -> Part {
        self.pieces[set][(word / 4) as usize].dword((word % 4) as u8)
    }

    /// The scores of a tile of so many keys, from chunks of which the first is there. Asks for the first one of values.
    pub fn scores(&self, b: &mut Builder, list: &[Chunk], then: &[Chunk], count: u32) -> Vec<Part> {
        // Two that stand side by side are issued together.
        let pairs: Vec<Part> = (0..count.div_ceil(2)).map(|_| b.v(2)).collect();
        let scores: Vec<Part> = (0..count).map(|key| pairs[(key / 2) as usize].dword((key % 2) as u8)).collect();
        let blocks = |c: &Chunk| (c.word / DEPTH) as usize;
        for (n, c) in list.iter().enumerate() {
            let products = self.of_scores(b, c, (n % 2, blocks(c) % 2), &scores);
            let next = list.get(n + 1).or(then.first());
            self.among(b, products, |b| {
                if let Some(next) = next {
                    self.load(b, next, (n + 1) % 2);
                }
                // The next pieces of queries come while all keys are multiplied by these.
                let begins = n == 0 || list[n - 1].word != c.word;
                let further = list[n..].iter().find(|x| x.word > c.word);
                if let Some(further) = further.filter(|_| begins) {
                    self.read(b, further.word, further.words, blocks(further) % 2);
                }
            });
        }
        scores
    }

    /// The products of a chunk of scores with pieces of the query, in registers of these sets.
    fn of_scores(&self, b: &mut Builder, c: &Chunk, (set, pieces): (usize, usize), scores: &[Part]) -> Vec<MInst> {
        let float = Float(Type::F32);
        let t = self.keys.plan.t;
        let dot = dot(b.target(), t);
        b.aside(|b| {
            let mut begun = vec![c.word > 0; c.keys as usize];
            let mut multiply = |b: &mut Builder, key: u32, word: u32| {
                let (x, y) = (self.registers(c, key, set).dword(word as u8), self.query(pieces, word));
                let (sum, begun) = (scores[(c.key + key) as usize], &mut begun[key as usize]);
                let onto: Opnd = if *begun { sum.into() } else { 0u32.into() };
                match dot {
                    Some(dot) => b.emit(dot, &[sum.into()], &[x.into(), y.into(), onto]),
                    None if t == Type::F16 => {
                        self.mixed(b, sum, x, y.into(), (0, 0), onto);
                        self.mixed(b, sum, x, y.into(), (1, 1), sum.into());
                    }
                    None if *begun => float.fma_into(b, sum, x, y),
                    None => b.emit(Gen::Mul.of(Type::F32), &[sum.into()], &[x.into(), y.into()]),
                }
                *begun = true;
            };
            // Two words, of which one key begins with the first, its neighbour with the second.
            for word in (0..c.words).step_by(2) {
                for turn in 0..2 {
                    (0..c.keys).for_each(|key| multiply(b, key, word + (key + turn) % 2));
                }
            }
        })
    }

    /// Adds up values by weights, from chunks of which the first is there, in registers of the set that says `set`. Asks for the first chunk of
    /// the next tile, where there is one.
    pub fn values(
        &self,
        b: &mut Builder,
        (list, set): (&[Chunk], usize),
        next_tile: Option<&Chunk>,
        results: &[Part],
        weights: &[Part],
    ) {
        for (n, c) in list.iter().enumerate() {
            let own = (set + n) % 2;
            let products = self.of_values(b, c, own, results, weights);
            let next = list.get(n + 1);
            let first = next_tile.filter(|_| next.is_none());
            self.among(b, products, |b| {
                if let Some(next) = next {
                    self.load(b, next, 1 - own);
                }
                if let Some(first) = first {
                    let key = self.next(b);
                    b.copy_into(self.key, key);
                    self.go(b);
                    self.read(b, first.word, first.words, 0);
                }
                if let Some(first) = first.filter(|_| own == 1) {
                    self.load(b, first, 0);
                }
            });
            // Where chunks are odd in number its registers have just been read.
            if let Some(first) = first.filter(|_| own == 0) {
                self.load(b, first, 0);
            }
        }
    }

    /// The products of a chunk of values.
    fn of_values(&self, b: &mut Builder, c: &Chunk, set: usize, results: &[Part], weights: &[Part]) -> Vec<MInst> {
        let result = |column: u32| results[(column / 4) as usize].dword((column % 4) as u8);
        let weight = |key: u32| weights[(c.key + key) as usize];
        let word = |key: u32, w: u32| self.registers(c, key, set).dword(w as u8);
        match (self.keys.plan.t, dot(b.target(), self.keys.plan.t)) {
            (_, Some(dot)) => b.aside(|b| {
                // Columns of two keys side by side, one dword ahead of what multiplies them.
                let both = |b: &mut Builder, w: u32| {
                    let of = |key: u32| -> Opnd { if key < c.keys { word(key, w).into() } else { 0u32.into() } };
                    [op::S_PACK_LL_B32_B16, op::S_PACK_HH_B32_B16].map(|op| b.op(op, &[of(0), of(1)]))
                };
                let weight = weights[(c.key / OF_VALUES) as usize];
                let mut next = both(b, 0);
                for w in 0..c.words {
                    let columns = next;
                    if w + 1 < c.words {
                        next = both(b, w + 1);
                    }
                    for (half, column) in (0..).zip(columns) {
                        let sum: Opnd = result(2 * (c.word + w) + half).into();
                        b.emit(dot, &[sum], &[column.into(), weight.into(), sum]);
                    }
                }
            }),
            (Type::F16, None) => b.aside(|b| {
                for (key, w) in (0..c.keys).flat_map(|key| (0..c.words).map(move |w| (key, w))) {
                    for half in 0..2 {
                        let sum = result(2 * (c.word + w) + half);
                        self.mixed(b, sum, word(key, w), weight(key).into(), (half, WHOLE), sum.into());
                    }
                }
            }),
            _ => b.aside(|b| {
                // Neighbours have neighbouring columns, of different keys.
                for (turn, w) in (0..2).flat_map(|turn| (0..c.words).step_by(2).map(move |w| (turn, w))) {
                    for key in 0..c.keys {
                        let column = w + (key + turn) % 2;
                        Float(Type::F32).fma_into(b, result(c.word + column), word(key, column), weight(key));
                    }
                }
            }),
        }
    }

    /// `sum = x y + onto`, where factors are halves of words, or words of f32.
    fn mixed(&self, b: &mut Builder, sum: Part, x: Part, y: Opnd, halves: (u32, u32), onto: Opnd) {
        let (of_x, of_y) = halves;
        let bit = |n: u32, at: u32| i32::from(n == 1) << at;
        let is_half = |n: u32, at: u32| i32::from(n != WHOLE) << at;
        let mods = Mods::new()
            .with(ModName::OpSel, bit(of_x, 0) | bit(of_y, 1))
            .with(ModName::OpSelHi, is_half(of_x, 0) | is_half(of_y, 1));
        b.push(MInst { mods, ..MInst::new(op::V_FMA_MIX_F32, &[sum.into()], &[x.into(), y, onto]) });
    }

    /// Puts what is written by `beside` behind the first of some products, which has waited for all that was asked for before.
    fn among(&self, b: &mut Builder, products: Vec<MInst>, beside: impl FnOnce(&mut Builder)) {
        let first = products.iter().position(|i| i.dsts.iter().any(|d| b.is_vector(*d))).map_or(0, |n| n + 1);
        let mut products = products.into_iter();
        b.append(products.by_ref().take(first));
        beside(b);
        b.append(products);
    }
}

/// Not a half of a word.
const WHOLE: u32 = 2;
