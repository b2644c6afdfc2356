package javax.annotation;

/** Stands in for jakarta.annotation-api 1.3, so that the generated client compiles without Maven's registry. */
public @interface Generated {
    String[] value();

    String date() default "";

    String comments() default "";
}
