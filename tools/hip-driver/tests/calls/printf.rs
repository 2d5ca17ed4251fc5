//! What device code prints: formats, and the records of a buffer.

use amdhip64::printf::{Formats, MOST, format, records};

fn words(text: &str) -> Vec<u64> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((bytes.len() + 8) / 8 * 8, 0);
    bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
}

fn formatted(format_text: &str, arguments: &[u64]) -> String {
    String::from_utf8(format(format_text.as_bytes(), arguments)).unwrap()
}

#[test]
fn formats_are_those_of_c() {
    assert_eq!(formatted("plain 100%%\n", &[]), "plain 100%\n");
    assert_eq!(formatted("%d %5u|%-4x|%c", &[-3i64 as u64, 42, 255, 65]), "-3    42|ff  |A");
    assert_eq!(formatted("%.3f %g", &[1.5f64.to_bits(), 0.25f64.to_bits()]), "1.500 0.25");
    assert_eq!(formatted("%*d %-*.*f|", &[5, 7, 8, 2, 2.5f64.to_bits()]), "    7 2.50    |");
    assert_eq!(formatted("%lld %hhd", &[1 << 40, 300]), "1099511627776 44");
    let arguments = [words("a string of some length"), words("abc"), vec![9]].concat();
    assert_eq!(formatted("<%s> <%6s> %d", &arguments), "<a string of some length> <   abc> 9");
    // Not enough arguments, a conversion that C does not have, an enormous width.
    assert_eq!(formatted("%d %d", &[1]), "1 ");
    assert_eq!(formatted("x%", &[]), "x");
    assert_eq!(formatted("%999999999d", &[1]).len(), MOST - 1);
    assert_eq!(formatted("%ls%n!", &[0x41]), "A!");
    assert_eq!(formatted("%***d", &[1, 2, 3, 4]), "");
}

#[test]
fn records_are_taken_apart() {
    let formats = Formats::new(&["0:0:e2702f14773018b1,%d, and %s\n".into(), "1:2:4:8:OpenCL's".into()]);
    let record = |flags: u32, words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        [((bytes.len() as u32 + 4) << 2 | flags).to_le_bytes().to_vec(), bytes].concat()
    };
    let printed = |bytes: &[u8]| {
        let mut all = Vec::new();
        records(bytes, &formats, |text, err| {
            all.push((String::from_utf8(text.to_vec()).unwrap(), err));
            true
        });
        all
    };
    let first = record(2, &[&[0xe2702f14773018b1, 7][..], &words("seven")].concat());
    let second = record(1, &[words("%d%%"), vec![5]].concat());
    let all = [first.clone(), second.clone()].concat();
    assert_eq!(printed(&all), [("7, and seven\n".into(), false), ("5%".into(), true)]);
    // Formats that nobody knows, records without one, sizes that lead nowhere, ends of a buffer.
    assert_eq!(printed(&record(2, &[1, 2])), []);
    assert_eq!(printed(&record(2, &[])), []);
    assert_eq!(printed(&[0; 64]), []);
    assert_eq!(printed(&[first.clone(), vec![0xff; 40]].concat()).len(), 1);
    assert_eq!(printed(&all[..all.len() - 1]).len(), 1);
    assert_eq!(printed(&first[..3]), []);
}
