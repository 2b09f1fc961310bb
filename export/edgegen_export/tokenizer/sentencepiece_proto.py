"""The protobuf schema of a SentencePiece ``tokenizer.model``: the fields that a ``tokenizer.json`` is made from.

Field numbers and defaults are those of ``sentencepiece_model.proto``. Strings are declared as bytes and enumerations
as integers, so that a wrong value reaches the error message instead of being dropped by the parser.
"""

from functools import cache
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from edgegen.errors import CheckpointError

_BOOL: Final = FieldDescriptorProto.TYPE_BOOL
_BYTES: Final = FieldDescriptorProto.TYPE_BYTES
_FLOAT: Final = FieldDescriptorProto.TYPE_FLOAT
_INT32: Final = FieldDescriptorProto.TYPE_INT32
_SCHEMA = {
    "SentencePiece": [(1, "piece", _BYTES, ""), (2, "score", _FLOAT, "0"), (3, "type", _INT32, "1")],
    "TrainerSpec": [
        (3, "model_type", _INT32, "1"),
        (24, "treat_whitespace_as_suffix", _BOOL, "false"),
        (35, "byte_fallback", _BOOL, "false"),
        (40, "unk_id", _INT32, "0"),
        (41, "bos_id", _INT32, "1"),
        (42, "eos_id", _INT32, "2"),
        (43, "pad_id", _INT32, "-1"),
    ],
    "NormalizerSpec": [
        (1, "name", _BYTES, ""),
        (2, "precompiled_charsmap", _BYTES, ""),
        (3, "add_dummy_prefix", _BOOL, "true"),
        (4, "remove_extra_whitespaces", _BOOL, "true"),
        (5, "escape_whitespaces", _BOOL, "true"),
    ],
}
"""Number, name, type and default of each field, by message."""
_MODEL = {"pieces": "SentencePiece", "trainer_spec": "TrainerSpec", "normalizer_spec": "NormalizerSpec"}
"""The first three fields of ``ModelProto``, with their messages; the pieces are repeated."""


def parse_model(data: bytes, name: str) -> Any:
    """The ``ModelProto`` in a file's bytes; unknown fields are skipped.

    Raises:
        CheckpointError: the bytes are no protobuf message of this type.
    """
    try:
        return _model_class().FromString(data)
    except DecodeError as error:
        raise CheckpointError(
            f"{name} is not a SentencePiece model: it is damaged, truncated, or a file of another format"
        ) from error


@cache
def _model_class() -> Any:
    file = FileDescriptorProto(name="sentencepiece_model.proto", package="edgegen", syntax="proto2")
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, field, kind, default in fields:
            added = message.field.add(name=field, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
            added.default_value = default
    model = file.message_type.add(name="ModelProto")
    for number, (field, kind) in enumerate(_MODEL.items(), start=1):
        label = FieldDescriptorProto.LABEL_REPEATED if field == "pieces" else FieldDescriptorProto.LABEL_OPTIONAL
        model.field.add(name=field, number=number, label=label, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=kind)
    # A pool of its own: the sentencepiece package registers the same messages in the default pool.
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("edgegen.ModelProto"))
