use barewave_isa::*;
fn main() {
    let mut a = std::env::args().skip(1);
    let t = Target::parse(&a.next().unwrap()).unwrap();
    for n in a {
        let op = Op::by_name(&n).unwrap();
        match t.op(op) {
            None => println!("{n}: none"),
            Some(i) => {
                println!(
                    "{} {} pipe {:?} counters {:?} lat {}/{} mem {} flags {:x} reads {:?} writes {:?} class {:?}",
                    i.op,
                    i.name,
                    i.pipe,
                    i.counters,
                    i.latency,
                    i.busy,
                    i.mem_bytes,
                    i.flags.0,
                    i.reads,
                    i.writes,
                    t.latency_class(op)
                );
                for s in i.dsts {
                    println!(
                        "   dst {} {:?} {}b {:?} align {} read {}",
                        s.name, s.class, s.bits, s.ty, s.align, s.read
                    );
                }
                for s in i.srcs {
                    println!("   src {} {:?} {}b {:?} align {}", s.name, s.class, s.bits, s.ty, s.align);
                }
            }
        }
    }
    for w in [
        &[(Counter::Vm, 3u8)][..],
        &[(Counter::Vm, 0), (Counter::Lgkm, 0)],
        &[(Counter::Vs, 0)],
        &[(Counter::Exp, 0), (Counter::Km, 2)],
    ] {
        let i = t.encode_waits(w);
        println!("{w:?} -> {i:?} -> {:?}", i.iter().map(|i| t.decode_wait(i)).collect::<Vec<_>>());
    }
}
