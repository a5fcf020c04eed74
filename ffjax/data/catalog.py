"""What is known of the datasets before they are read: classes, sizes and checksums."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Definition:
    """What a dataset must be like."""

    class_names: tuple[str, ...]
    image_shape: tuple[int, ...]
    train_size: int
    test_size: int
    home: str  # where a user finds the files
    # Of the training and the test split (see verify.py), whatever files they came in;
    # None where only the files' own checksums are known.
    digests: tuple[str, str] | None = None


@dataclasses.dataclass(frozen=True)
class Download:
    """A file at its official place; ``sha256`` is of the file as published."""

    url: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rsplit("/", 1)[1]


_DIGITS = tuple("0123456789")
_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_THINGS = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")

DATASETS: dict[str, Definition] = {
    "fashion_mini": Definition(
        _CLOTHES,
        (28, 28),
        6_000,
        2_000,
        "https://github.com/zalandoresearch/fashion-mnist",
    ),
    "mnist": Definition(
        _DIGITS,
        (28, 28),
        60_000,
        10_000,
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        (
            "77e53833132bf95be69597ec37ab1fe6e244a8ec01734dc1e37577009c73fe82",
            "c1d324e5e6ba32dd1acf59ced32dfe6c63fd590c08f12a88bdb07418bc157809",
        ),
    ),
    "fashion_mnist": Definition(
        _CLOTHES,
        (28, 28),
        60_000,
        10_000,
        "https://github.com/zalandoresearch/fashion-mnist",
        (
            "989cc2261976bc9acabe9650d9ff14fd2e7808baad4197fa53f97c70a6adfe9e",
            "871a68ce0ff9c30eafd64bcb65ff26f2eda8345f80ca4c9ba8e1fe73a4682ada",
        ),
    ),
    "cifar10": Definition(
        _THINGS,
        (32, 32, 3),
        50_000,
        10_000,
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        (
            "9529ca6bff8c58e021744f85f5c1deecd447ec15fb608e939f3eec881eb68970",
            "8d172ba652686f0bd364fc7360f9a76bf8d02be9b35ce0a4b16f5c4abcc0466d",
        ),
    ),
    "usps": Definition(
        _DIGITS,
        (16, 16),
        7_291,
        2_007,
        "https://hastie.su.domains/ElemStatLearn/data.html",
        (
            "c98c81a6f970c5cf4c110062ec32317b228ecea657db70ec26bc7293f2e80861",
            "423c7fdad70f5cf42ddf1b09307dc6d9a276dbc0cc11bb0e67b72389ff39a3c3",
        ),
    ),
    "svhn": Definition(
        _DIGITS, (32, 32, 3), 73_257, 26_032, "http://ufldl.stanford.edu/housenumbers/"
    ),
    "emnist_letters": Definition(
        _LETTERS,
        (28, 28),
        124_800,
        20_800,
        "https://www.nist.gov/itl/products-and-services/emnist-dataset",
    ),
}

# What our TFDS builders download. The checksums of SVHN and EMNIST are those that TFDS
# 4.9.10 records for these addresses.
DOWNLOADS: dict[str, tuple[Download, ...]] = {
    "usps": (
        Download(
            "https://hastie.su.domains/ElemStatLearn/datasets/zip.train.gz",
            1_829_071,
            "66ebf231ab51f2cf6ac1a892d0f98ccffee1079d7a5db638c1f11f366046ca16",
        ),
        Download(
            "https://hastie.su.domains/ElemStatLearn/datasets/zip.test.gz",
            439_208,
            "8dacc3c6e136af6c3488de9e5113a7daf140c8c2f1f0b61c54ee02f03f1a962f",
        ),
    ),
    "svhn": (
        Download(
            "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
            182_040_794,
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
        Download(
            "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
            64_275_384,
            "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
    ),
    "emnist_letters": (
        Download(
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
            561_753_746,
            "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
        ),
    ),
}

# The checksums of the files as published: SHA-256, as TFDS 4.9.10 records it (USPS and
# CIFAR-10's batches: computed); for LIBSVM's USPS MD5, as torchvision records it.
PUBLISHED: dict[str, dict[str, str]] = {
    "mnist": {
        "train-images-idx3-ubyte.gz": (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
        ),
        "train-labels-idx1-ubyte.gz": (
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
        ),
        "t10k-images-idx3-ubyte.gz": (
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
        ),
        "t10k-labels-idx1-ubyte.gz": (
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
        ),
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte.gz": (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"
        ),
        "train-labels-idx1-ubyte.gz": (
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"
        ),
        "t10k-images-idx3-ubyte.gz": (
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"
        ),
        "t10k-labels-idx1-ubyte.gz": (
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
        ),
    },
    "cifar10": {
        "data_batch_1.bin": (
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"
        ),
        "data_batch_2.bin": (
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"
        ),
        "data_batch_3.bin": (
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"
        ),
        "data_batch_4.bin": (
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"
        ),
        "data_batch_5.bin": (
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"
        ),
        "test_batch.bin": (
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"
        ),
        "cifar-10-binary.tar.gz": (
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
        ),
    },
    "usps": {
        "usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197",
        "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118",
        **{file.name: file.sha256 for file in DOWNLOADS["usps"]},
    },
    "svhn": {file.name: file.sha256 for file in DOWNLOADS["svhn"]},
    "emnist_letters": {file.name: file.sha256 for file in DOWNLOADS["emnist_letters"]},
}
