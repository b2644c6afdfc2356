package org.openapitools.jackson.nullable;

/** Stands in for jackson-databind-nullable, so that the generated client compiles without Maven's registry. */
public final class JsonNullable<T> {
    private static final JsonNullable<?> UNDEFINED = new JsonNullable<>(null, false);
    private final T value;
    private final boolean isPresent;

    private JsonNullable(T value, boolean isPresent) {
        this.value = value;
        this.isPresent = isPresent;
    }

    @SuppressWarnings("unchecked")
    public static <T> JsonNullable<T> undefined() {
        return (JsonNullable<T>) UNDEFINED;
    }

    public static <T> JsonNullable<T> of(T value) {
        return new JsonNullable<>(value, true);
    }

    public T get() {
        return orElse(null);
    }

    public T orElse(T other) {
        return isPresent ? value : other;
    }

    public boolean isPresent() {
        return isPresent;
    }
}
